"""The embedded runner: what it runs, checks, counts and says of failures."""

import json
from contextlib import nullcontext

import pytest
import torch

from tlx_clc_plugin.bench import inputs, runner
from tlx_clc_plugin.bench.backends import BACKENDS, Backend
from tlx_clc_plugin.bench.device import Cuda
from tlx_clc_plugin.bench.flags import Request
from tlx_clc_plugin.bench.inputs import Shape
from tlx_clc_plugin.bench.metrics import METRICS, of_launches
from tlx_clc_plugin.emulator import CtaReport, LaunchReport, TmaStore


def run(capsys, *argv):
    status = runner.run([*argv, "--device", "emulated"], "for a test")
    return status, *capsys.readouterr()


def product(a, b, bias):
    result = a.double() @ b.double()
    return (result if bias is None else result + bias.double()).to(a.dtype)


def raises(*_):
    raise OSError("planted, at set-up\nand a second line")


def raises_late(*_):
    return lambda: 1 // 0


def spoils(a, b, bias):
    """Zeroes an input, and gives the product of what is left."""
    return lambda: a.zero_() @ b + bias


def never_writes(a, b, bias):
    """Returns new memory, most likely the one that held the right result."""
    kept = [product(a, b, bias)]

    def function():
        kept.clear()
        return torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)

    return function


BAD = {
    "raises": (raises, "OSError: planted, at set-up"),
    "raises_late": (raises_late, "ZeroDivisionError: "),
    "none": (lambda *_: lambda: None, "inaccurate, got NoneType, not a tensor"),
    "no_function": (lambda *_: None, "TypeError: "),
    "zeros": (lambda *x: lambda: product(*x) * 0, "inaccurate, error "),
    "scaled": (lambda *x: lambda: product(*x) * 1.01, "inaccurate, error "),
    "nan": (lambda *x: lambda: product(*x) * torch.nan, "inaccurate, error inf"),
    "float32": (lambda *x: lambda: product(*x).float(), "inaccurate, got torch.float32"),
    "spoils": (spoils, "inaccurate, error "),
    "never_writes": (never_writes, "inaccurate, error inf"),
}


def test_failures_are_named_and_cost_the_others_nothing(capsys, monkeypatch, tmp_path):
    for name, (prepare, _) in BAD.items():
        monkeypatch.setitem(BACKENDS, name, Backend(name, "planted", prepare))
    monkeypatch.setitem(
        BACKENDS, "good", Backend("good", "planted", lambda *x: lambda: product(*x))
    )
    status, out, err = run(
        capsys,
        *("--only", ",".join(["aten_matmul", *BAD, "good"])),
        *("--shapes", "64x48x300,64x48x16", "--bias", "--metrics", "accuracy,error"),
        *("--output", str(tmp_path / "x.csv"), "--output-json", str(tmp_path / "x.json")),
    )
    assert status == 1
    said = [line for line in err.splitlines() if line.startswith("tritonbench: ")]
    assert len(said) == 2 * len(BAD)
    for shape in ("(64, 48, 300)", "(64, 48, 16)"):
        for name, (_, words) in BAD.items():
            start = f"tritonbench: gemm {name} {shape}: {words}"
            assert any(line.startswith(start) for line in said), (start, said)
    flat = json.loads((tmp_path / "x.json").read_text())
    for name in ("aten_matmul", "good"):
        assert flat[f"tritonbench_gemm_fwd[x_(64, 48, 300)-{name}]_accuracy"] == 1
        assert 0 <= flat[f"tritonbench_gemm_fwd[x_(64, 48, 300)-{name}]_error"] <= 1
        assert f"{name}-accuracy" in out and f"{name}-error" in (tmp_path / "x.csv").read_text()
    for name, (_, words) in BAD.items():
        cell = flat[f"tritonbench_gemm_fwd[x_(64, 48, 300)-{name}]_accuracy"]
        assert cell == 0 if words.startswith("inaccurate") else cell.startswith(words)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_four_backends_run_and_are_right(capsys, precision):
    status, out, err = run(
        capsys,
        *("--shapes", "136x144x72", "--bias", "144", "--precision", precision, "--layout", "nt"),
        *("--metrics", ",".join(METRICS), "--sms", "3", "--policy", "random", "--seed", "5"),
        "--csv",
    )
    first, *others = err.splitlines()
    lacking = "needs sm_90, and the emulated device (--arch) is sm_100"
    assert (status, others) == (0, [f"tritonbench: tlx_dynamic: not run, {lacking}"])
    assert first.startswith(
        "runner: embedded (for a test)  device: emulated sm_100a, 3 SMs, policy random, seed 5"
    )
    header, row, average = (line.split(";") for line in out.splitlines())
    cells = dict(zip(header, row, strict=True))
    assert cells.pop("(M, N, K)") == "(136, 144, 72)" and average[0] == "average"
    names = ["aten_matmul", "triton_tutorial_matmul", "tlx_persistent", "tlx_clc"]
    assert list(cells) == [
        f"{name}-{metric}"
        for name in names
        for metric in METRICS
        if (name, metric) != ("aten_matmul", "speedup")
    ]
    for name in names:
        assert cells[f"{name}-accuracy"] == "1.0" and float(cells[f"{name}-error"]) <= 1
        assert cells[f"{name}-latency"] == cells[f"{name}-tflops"] == "n/a"
        # torch on the CPU launches nothing.
        emulated = name != "aten_matmul"
        for metric in ("tiles_per_cta_max", "stolen_tiles", "instructions", "emulation_seconds"):
            assert (cells[f"{name}-{metric}"] != "n/a") == emulated
        if emulated:
            assert cells[f"{name}-speedup"] == "n/a" and int(cells[f"{name}-instructions"]) > 1000


def test_a_hopper_gpu_is_emulated_when_asked_for(capsys):
    argv = ["--shapes", "136x144x72", "--arch", "sm_90a", "--metrics", "accuracy", "--csv"]
    ours = ["tlx_persistent", "tlx_dynamic"]
    status, out, err = run(capsys, *argv, "--only", ",".join(ours))
    assert status == 0 and "device: emulated sm_90a, 4 SMs" in err
    assert out.splitlines()[1] == "(136, 144, 72);1.0;1.0"
    status, _, err = run(capsys, *argv, "--only", "tlx_clc")
    assert status == 1 and "tlx_clc: not run, needs sm_100, and the emulated device" in err


def test_tiles_of_one_sm_are_all_its_own(capsys):
    # One SM has time for one CTA: it computes all tiles, by CLC it steals all but its first.
    argv = ["--shapes", "600x40x16", "--only", "tlx_persistent,tlx_clc", "--sms", "1", "--csv"]
    metrics = "tiles_per_cta_min,tiles_per_cta_max,stolen_tiles"
    status, out, _ = run(capsys, *argv, "--metrics", metrics)
    assert status == 0
    persistent, clc = out.splitlines()[1].split(";")[1:4], out.splitlines()[1].split(";")[4:]
    rows = 5  # of tiles: ceil(600 / 128)
    assert persistent[0] == persistent[1] and persistent[2] == "0"
    assert clc[0] == clc[1] and int(clc[2]) == int(clc[0]) - 1
    assert persistent[0] == clc[0] and int(clc[0]) % rows == 0


def test_metrics_of_launches_worked_by_hand():
    def cta(stolen, *corners):
        stores = tuple(TmaStore(4096, corner, (128, 128)) for corner in corners)
        return CtaReport((0, 0, 0), 0, stolen, stores, 10)

    # Tiles of 128 rows and 256 columns, each stored in two halves; coordinates are (column, row).
    first = cta(((1, 0, 0),), (0, 0), (128, 0), (256, 0), (384, 0))
    second = cta(
        ((2, 0, 0), (3, 0, 0)), (0, 128), (128, 128), (0, 256), (128, 256), (512, 0), (640, 0)
    )
    launch = LaunchReport("k", (6, 1, 1), 2, "eager", 0, 70, 0.5, [first, second])
    assert of_launches([launch, launch], (128, 256)) == {
        "tiles_per_cta_min": 2,
        "tiles_per_cta_max": 3,
        "stolen_tiles": 6,
        "instructions": 140,
        "emulation_seconds": 1.0,
    }
    assert of_launches([launch], None)["tiles_per_cta_max"] == 1
    assert of_launches([], (128, 128)) == {}


class Clock:
    """A device on which the n-th function timed takes n milliseconds."""

    torch_device = "cpu"

    def __init__(self):
        self.timed = 0

    def unavailable(self, backend):
        return "needs another GPU" if backend.schedule else ""

    def active(self):
        return nullcontext([])

    def latency(self, function):
        self.timed += 1
        return float(self.timed)


def request(*backends, bias=False):
    metrics = ["latency", "tflops", "speedup", "accuracy"]
    shapes = [Shape(100, 200, 300)]
    return Request(
        Clock(), list(backends), "aten_matmul", metrics, shapes, "tn", "fp16", bias=bias, seed=0
    )


@pytest.mark.parametrize("bias", [False, True])
def test_times_become_tflops_and_speedup(bias):
    good = Backend("good", "planted", lambda *x: lambda: product(*x))
    asked = request(
        BACKENDS["aten_matmul"],
        Backend("wrong", "planted", BAD["zeros"][0]),
        BACKENDS["tlx_clc"],
        good,
        bias=bias,
    )
    results, interrupted = runner.measure_all(asked)
    ((_, measured),) = results.rows
    assert not interrupted and list(measured) == ["aten_matmul", "wrong", "good"]
    operations = 2 * 100 * 200 * 300 + (2 * 100 * 200 if bias else 0)
    assert measured["aten_matmul"].values["tflops"] == pytest.approx(operations / 1e-3 / 1e12)
    # A wrong result is not timed.
    assert "latency" not in measured["wrong"].values and "speedup" not in measured["wrong"].values
    assert measured["good"].values["latency"] == 2
    assert measured["good"].values["tflops"] == pytest.approx(operations / 2e-3 / 1e12)
    assert measured["good"].values["speedup"] == 0.5


def test_what_the_device_lacks_is_said(capsys, monkeypatch):
    monkeypatch.setattr(runner, "resolve", lambda args: request(*BACKENDS.values()))
    # The stock kernel needs a Triton device, and Clock is none.
    monkeypatch.setitem(
        BACKENDS, "triton_tutorial_matmul", Backend("good", "", lambda *x: lambda: product(*x))
    )
    for argv, expected in ([], 0), (["--only", "aten_matmul,tlx_clc"], 1):
        status, out, err = run(capsys, *argv)
        assert status == expected
        assert "tritonbench: tlx_clc: not run, needs another GPU" in err
        assert "aten_matmul-latency" in out and "tlx_clc" not in out


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        ((9, 0), "needs sm_100, and Planted is sm_90"),
        ((10, 0), ""),
        ((10, 3), ""),
        ((12, 0), "needs sm_100, and Planted is sm_120"),
    ],
)
def test_tlx_backends_need_a_blackwell_data_centre_gpu(monkeypatch, capability, reason):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Planted")
    assert Cuda().unavailable(BACKENDS["tlx_clc"]) == reason
    assert Cuda().unavailable(BACKENDS["triton_tutorial_matmul"]) == ""


def test_interrupted_runs_keep_what_they_have(capsys, monkeypatch):
    def prepare(a, b, bias):
        if a.shape[0] == 16:
            raise KeyboardInterrupt
        return lambda: product(a, b, bias)

    monkeypatch.setitem(BACKENDS, "stops", Backend("stops", "planted", prepare))
    status, out, _ = run(
        capsys, "--only", "stops", "--shapes", "8x8x8,16x8x8", "--metrics", "accuracy", "--csv"
    )
    assert status == 130
    assert out.splitlines()[1:] == ["(8, 8, 8);1.0", "(16, 8, 8);interrupted", "average;1.0"]


def test_what_cannot_be_written_is_told_and_the_rest_kept(capsys, tmp_path):
    written = tmp_path / "out.json"
    argv = ("--only", "aten_matmul", "--shapes", "8x8x8", "--metrics", "accuracy")
    outputs = ("--output", "/dev/full", "--output-json", str(written))
    status, out, err = run(capsys, *argv, *outputs)
    assert status == 1 and "(8, 8, 8)" in out
    assert "tritonbench: /dev/full: not written, No space left on device" in err
    assert json.loads(written.read_text())


def test_inputs_that_do_not_fit_cost_no_other_results(capsys, monkeypatch):
    def make(shape, **options):
        if shape.M == 9:
            raise MemoryError("planted")
        return inputs.make(shape, **options)

    monkeypatch.setattr(runner, "make", make)
    argv = ("--only", "aten_matmul", "--shapes", "8x8x8,9x8x8", "--metrics", "accuracy", "--csv")
    status, out, err = run(capsys, *argv)
    assert status == 1 and "(8, 8, 8);1.0" in out.splitlines()
    assert "MemoryError: planted" in err


@pytest.mark.parametrize(
    "argv",
    [
        ("--seed", "99999999999999999999999"),
        ("--seed", "-1"),
        ("--output", "x.csv", "--output-json", "x.csv"),
    ],
)
def test_more_requests_that_make_no_sense(capsys, argv):
    with pytest.raises(SystemExit) as error:
        run(capsys, *argv)
    assert error.value.code == 2 and argv[1] in capsys.readouterr().err


def test_listing_names_backends_and_metrics(capsys):
    status, out, err = run(capsys, "--list-backends", "--list-metrics")
    assert (status, err) == (0, "")
    assert "    aten_matmul [baseline] " in out
    assert all(f"\n    {name} " in out for name in [*METRICS, "tlx_persistent", "tlx_clc"])

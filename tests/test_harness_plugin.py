"""The plugin's parts, inside a tritonbench imported into this process on the emulated device."""

import argparse
import sys
import types

import pytest
import torch
from harness_checkout import CHECKOUT, needs_harness

import tlx_clc_plugin
from tlx_clc_plugin import gemm
from tlx_clc_plugin.emulator import EmulatedDevice
from tlx_clc_plugin.harness import checks, device, generation, launch, metrics
from tlx_clc_plugin.harness.events import Log

pytestmark = needs_harness


@pytest.fixture(scope="module")
def harness():
    """tritonbench.utils.triton_op with our backends, and no trace of it afterwards."""
    own = argparse.Namespace(arch="sm_100a", sms=2, policy="eager", seed=0)
    sys.path.insert(0, str(CHECKOUT))
    try:
        with device.active("cpu", own):
            from tritonbench.operators.gemm import Operator
            from tritonbench.utils import triton_op

            tlx_clc_plugin.register()
            triton_op.GemmOperator = Operator
            yield triton_op
    finally:
        sys.path.remove(str(CHECKOUT))
        for name in [name for name in sys.modules if name.partition(".")[0] == "tritonbench"]:
            del sys.modules[name]


def test_registering_again_changes_nothing(harness):
    entry = harness.REGISTERED_BENCHMARKS["gemm"]["tlx_clc"]
    names = list(harness.REGISTERED_BENCHMARKS["gemm"])
    ours = list(harness.REGISTERED_METRICS["gemm"])
    tlx_clc_plugin.register()
    assert harness.REGISTERED_BENCHMARKS["gemm"]["tlx_clc"] is entry
    assert list(harness.REGISTERED_BENCHMARKS["gemm"]) == names
    assert list(harness.REGISTERED_METRICS["gemm"]) == ours
    assert harness.BASELINE_BENCHMARKS["gemm"] == "aten_matmul"


@pytest.mark.parametrize("schedule", ["persistent", "clc"])
def test_entries(harness, schedule):
    entry = harness.REGISTERED_BENCHMARKS["gemm"][f"tlx_{schedule}"]
    assert (entry.enabled, entry.fwd_only, entry.baseline) == (True, True, False)
    assert entry.label == entry.name and entry.tags == ["tlx", schedule]


@pytest.mark.parametrize("schedule", ["persistent", "clc"])
def test_operands_reach_the_kernel_as_the_harness_made_them(harness, monkeypatch, schedule):
    passed = []
    monkeypatch.setattr(gemm, "matmul", lambda *args, **kwargs: passed.append((args, kwargs)))
    a, b, bias = torch.ones(3, 5), torch.ones(7, 5).T, torch.ones(7)
    function = getattr(harness.GemmOperator, f"tlx_{schedule}")(None, a, b, bias)
    assert not passed
    function()
    ((got_a, got_b), kwargs) = passed[0]
    assert got_a is a and got_b is b and kwargs == {"bias": bias, "schedule": schedule}


def operator(seed, *, mode="fwd", dtype=torch.float16, K=640):
    generator = torch.Generator().manual_seed(seed)
    a, b = ((torch.randn(s, generator=generator) + 1) / K for s in ((32, K), (K, 16)))
    a, b = a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()
    return types.SimpleNamespace(
        example_inputs=(a, b, None), mode=types.SimpleNamespace(value=mode)
    )


def truth(harness, op, function):
    method = harness.GemmOperator.tlx_accuracy
    return method(op, function, op.example_inputs, None)


@pytest.mark.parametrize("seed", range(3))
def test_truth(harness, seed):
    op = operator(seed)
    a, b, _ = op.example_inputs
    cached = a @ b
    kept = a.clone(), b.clone()
    assert truth(harness, op, lambda: a @ b) == 1
    assert truth(harness, op, lambda: (a @ b) * 1.5) == 0
    assert truth(harness, op, lambda: torch.zeros_like(a @ b)) == 0
    assert truth(harness, op, lambda: cached) == 0
    assert truth(harness, op, lambda: a) == 0
    assert truth(harness, op, lambda: None) == 0
    assert a.equal(kept[0]) and b.equal(kept[1])
    # All zero passes the operator's own tolerance.
    torch.testing.assert_close(torch.zeros_like(kept[0] @ b), kept[0] @ b, rtol=0.1, atol=0.01)


def test_truth_is_computed_once_for_a_callable_and_an_input(harness):
    op = operator(5)
    calls = []
    function = lambda: calls.append(0) or op.example_inputs[0] @ op.example_inputs[1]  # noqa: E731
    assert truth(harness, op, function) == 1
    assert harness.GemmOperator.tlx_error(op, function, op.example_inputs, None) < 1
    assert len(calls) == 2


def test_no_truth_where_there_is_none(harness):
    assert truth(harness, operator(0, mode="bwd"), lambda: None) is None
    assert truth(harness, operator(0, dtype=torch.float32), lambda: None) is None


def test_truth_of_a_mode_whose_wrapper_drops_the_result(harness):
    op = operator(1, mode="fwd_no_grad")
    op.backend = lambda a, b, bias: lambda: a @ b
    dropped = lambda: None  # noqa: E731
    dropped._name = "backend"
    assert truth(harness, op, dropped) == 1
    assert not metrics.judge(op, dropped).verdict.reason


def test_both_generations_of_baselines(harness, monkeypatch):
    assert generation.baselines("gemm") == ("aten_matmul",)
    monkeypatch.setitem(harness.BASELINE_BENCHMARKS, "gemm", ["aten_matmul", "good"])
    assert generation.baselines("gemm") == ("aten_matmul", "good")
    assert generation.baselines("no_such") == ()


def faults(*argv):
    from tritonbench.utils.parser import get_parser

    argv = ["--op", "gemm", "--device", "cpu", *argv]
    args, extra = get_parser(argv).parse_known_args(argv)
    return list(checks.in_harness(["gemm"], args, extra))


@pytest.mark.parametrize(
    "argv",
    [
        "--only aten_matmul,tlx_clc --skip pt2_triton_matmul --baseline triton_tutorial_matmul",
        "--only tlx_c --only-match-mode prefix-with-baseline",
        "--metrics latency,tflops,speedup,accuracy,snr,tlx_accuracy,tlx_error,stolen_tiles",
        "--m 3 --n 5 --k 7 --bias 5 --layout nn",
        "--shapes 1x2x3,4_5_6",
    ],
)
def test_sound_requests(harness, argv):
    assert faults(*argv.split()) == []


@pytest.mark.parametrize(
    "argv, told",
    [
        ("--only tlx", "--only tlx: unknown"),
        ("--only nope --only-match-mode prefix-with-baseline", "--only nope: unknown"),
        ("--skip nope", "--skip nope: unknown"),
        ("--only tlx_clc --skip tlx_clc", "--skip tlx_clc: tritonbench ignores it"),
        ("--baseline nope", "--baseline nope: unknown"),
        ("--metrics nope", "--metrics nope: unknown"),
        ("--metrics kernel_source_hash", "--metrics kernel_source_hash: this tritonbench shifts"),
        ("--metrics gbps", "--metrics gbps: means nothing"),
        ("--metrics walltime", "--metrics walltime: means nothing"),
        ("--metrics ncu_rep", "--metrics ncu_rep: means nothing"),
        ("--cudagraph", "--cudagraph: needs a GPU"),
        ("--input-loader x", "--input-loader: needs a GPU"),
        ("--layout tx", "--layout tx: not one of"),
        ("--shapes 1x2", "--shapes 1x2: not of the form"),
        ("--shapes 1x2x3;4x5x6", "--shapes 1x2x3;4x5x6: not of the form"),
        ("--shapes 1x2x3 --bias 2", "--bias with --shapes"),
        ("--m 3 --n 5", "--m, --n and --k go together"),
        ("--m 3 --n 5 --k 7 --bias 7", "--bias 7: the bias' length has to be N = 5"),
        ("--benchmark-name x", "--benchmark-name: tritonbench takes it"),
    ],
)
def test_unsound_requests(harness, argv, told):
    (fault,) = faults(*argv.split())
    assert fault.startswith(told)


@pytest.fixture
def launched(harness, monkeypatch, tmp_path):
    """Runs a command line as a harness process does; gives its log."""
    log = Log(tmp_path / "log")

    def run(*argv):
        launch.run(list(argv))
        return log.read()

    # The run sets the latter: set here first, it is removed afterwards.
    for name, value in {**log.environment, "TLX_CLC_NESTED": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TLX_CLC_NESTED")
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run.log = log
    return run


def test_backends_and_metrics_are_listed(launched, capsys):
    assert launched("--op", "gemm", "--list-backends", "--list-metrics") == []
    lines = {line.strip() for line in capsys.readouterr().out.splitlines()}
    assert {"tlx_clc [fwd_only]", "tlx_persistent [fwd_only]", "aten_matmul [baseline]"} <= lines
    assert {"tlx_accuracy", "tlx_error", "stolen_tiles"} <= lines


def test_nothing_runs_if_a_name_is_unknown(launched):
    with pytest.raises(SystemExit) as stop:
        launched("--op", "gemm", "--only", "aten_matmul,tlx_clk", "--metrics", "latancy")
    assert stop.value.code == 2
    assert [(e["event"], e["reason"].split(": ")[0]) for e in launched.log.read()] == [
        ("refused", "--only tlx_clk"),
        ("refused", "--metrics latancy"),
    ]


def test_a_gpu_is_not_made_up(launched):
    with pytest.raises(SystemExit) as stop:
        launched("--op", "gemm", "--device", "cuda")
    assert stop.value.code == 2
    assert launched.log.read()[0]["reason"].startswith("--device cuda: there is no GPU")


def test_autotuning_needs_a_gpu(launched):
    with pytest.raises(SystemExit) as stop:
        launched("--op", "gemm", "--autotune")
    assert stop.value.code == 2
    assert launched.log.read()[0]["reason"].startswith("--autotune: needs a GPU")


@pytest.mark.parametrize("value, configs", [("1", ["autotune"] * 2), ("", [None])])
def test_the_variable_that_autotunes(harness, monkeypatch, value, configs):
    seen = []
    for name in ("plan", "matmul"):
        monkeypatch.setattr(gemm, name, lambda *args, config=None, **kwargs: seen.append(config))
    monkeypatch.setenv("TLX_CLC_AUTOTUNE", value)
    harness.GemmOperator.tlx_persistent(None, None, None, None)()
    assert seen == configs


def test_disabled_where_nothing_can_run_them(harness, monkeypatch):
    from tlx_clc_plugin.harness.register import BACKENDS, disabled_reason

    assert [disabled_reason(name) for name in BACKENDS] == [
        "",
        "",
        "needs sm_90, and the emulated device (--arch) is sm_100",
    ]
    monkeypatch.setattr(EmulatedDevice, "current", staticmethod(lambda: None))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    reasons = {
        (9, 0): ["", "needs sm_100, and NVIDIA H200 is sm_90", ""],
        (10, 3): ["", "", "needs sm_90, and NVIDIA H200 is sm_103"],
        (12, 0): [
            "needs sm_90 or sm_100, and NVIDIA H200 is sm_120",
            "needs sm_100, and NVIDIA H200 is sm_120",
            "needs sm_90, and NVIDIA H200 is sm_120",
        ],
    }
    for capability, reason in reasons.items():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda c=capability: c)
        assert [disabled_reason(name) for name in BACKENDS] == reason

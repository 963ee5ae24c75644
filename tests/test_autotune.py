"""Autotuning with the emulator as the GPU and a stated time for each config."""

import dataclasses
import json
import multiprocessing
import random
import threading

import pytest
import torch

import tlx_clc_plugin
import tlx_clc_plugin.heuristics
from tlx_clc_plugin import GemmConfig, autotune
from tlx_clc_plugin.bench import flags
from tlx_clc_plugin.bench.backends import BACKENDS, autotuned
from tlx_clc_plugin.config import violations
from tlx_clc_plugin.emulator import EmulatedDevice

PROBLEM = autotune.Problem(
    *("NVIDIA H200", "9.0", 132, "3.7.4", "0.1.0", "hash", "hopper", "dynamic"),
    *(200, 100, 72, "float16", "row-major", "row-major", False),
)
CONFIG = GemmConfig(block_size_n=64, num_smem_buffers=3, epilogue_subtile=2)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TLX_CLC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(autotune, "_chosen", {})


@pytest.mark.parametrize("arch, schedule", [("hopper", "dynamic"), ("blackwell", "clc")])
def test_candidates_are_valid_different_and_begin_with_the_heuristics(arch, schedule):
    rng = random.Random(schedule)
    for _ in range(50):
        shape = [rng.choice((rng.randint(1, 300), rng.randint(1, 20000))) for _ in range(3)]
        M, N, K = shape
        bias = rng.random() < 0.5
        problem = dataclasses.replace(
            PROBLEM, arch=arch, schedule=schedule, M=M, N=N, K=K, bias=bias
        )
        found = autotune.candidates(problem)
        assert found[0] == tlx_clc_plugin.heuristics.select_config(
            M, N, K, 132, schedule=schedule, bias=bias, arch=arch
        )
        assert 8 <= len(found) <= autotune.MAX_CANDIDATES and len(set(found)) == len(found)
        assert not any(violations(c, schedule, bias=bias, arch=arch) for c in found)


def operands():
    a, b = torch.randn(200, 72).half(), torch.randn(72, 100).half()
    return a, b


def test_the_fastest_right_candidate_is_chosen():
    """The fastest gives a wrong product, the next leaves an element out, the third raises."""
    a, b = operands()
    configs = [dataclasses.replace(CONFIG, group_size_m=n) for n in range(1, 6)]
    random.Random(1).shuffle(configs)

    def run(config, out):
        if config.group_size_m == 3:
            raise RuntimeError("planted\nsecond line")
        out = torch.empty(200, 100).half() if out is None else out
        result = torch.empty_like(out)
        tlx_clc_plugin.matmul(a, b, schedule="dynamic", config=config, out=result)
        if config.group_size_m == 1:
            result *= 1.01
        rows = 199 if config.group_size_m == 2 else 200
        out[:rows] = result[:rows]
        return out

    timed = []

    def time(call):
        assert call().shape == (200, 100)
        return timed[-1]

    def milliseconds(config):
        timed.append(config.group_size_m)
        return autotune.measurer(run, a, b, None, time)(config)

    with EmulatedDevice(arch="sm_90a"), pytest.warns(RuntimeWarning) as told:
        best, ms = autotune.tune(configs, milliseconds)
    assert (best.group_size_m, ms) == (4, 4)
    words = sorted(str(w.message) for w in told)
    assert [w.partition("group_size_m=")[2][0] for w in words] == ["1", "2", "3"]
    assert "WrongResult: error" in words[0] and "RuntimeError: planted" in words[2]


def test_if_none_is_right_all_are_named():
    def wrong(config):
        raise autotune.WrongResult("planted")

    with pytest.raises(RuntimeError) as error:
        autotune.choose(PROBLEM, lambda: wrong)
    assert str(error.value).count("WrongResult: planted") == len(autotune.candidates(PROBLEM))
    assert not autotune.path_of(PROBLEM).exists()


def prepared(calls):
    """Times by which the fourth candidate is fastest; every tuning run is noted."""

    def prepare():
        calls.append(1)
        order = autotune.candidates(PROBLEM)
        return lambda config: abs(order.index(config) - 3)

    return prepare


def test_a_choice_is_remembered_in_memory_and_on_disk(monkeypatch):
    calls = []
    expected = autotune.candidates(PROBLEM)[3]
    assert autotune.choose(PROBLEM, prepared(calls)) == expected
    assert autotune.choose(PROBLEM, prepared(calls)) == expected and len(calls) == 1
    monkeypatch.setattr(autotune, "_chosen", {})
    assert autotune.choose(PROBLEM, prepared(calls)) == expected and len(calls) == 1
    assert [path.suffix for path in autotune.folder().iterdir()] == [".json"]


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(PROBLEM)])
def test_every_part_of_the_problem_counts(field):
    value = getattr(PROBLEM, field)
    other = {bool: not value, int: 8, str: "column-major"}[type(value)]
    assert autotune.path_of(dataclasses.replace(PROBLEM, **{field: other})) != (
        autotune.path_of(PROBLEM)
    )


def changed(content, **changes):
    return json.dumps({**content, **changes})


BAD = {
    "empty": lambda content: "",
    "truncated": lambda content: json.dumps(content)[:-30],
    "no object": lambda content: "[1]",
    "another problem": lambda content: changed(content, problem={**content["problem"], "M": 1}),
    "no config": lambda content: changed(content, config=None),
    "unknown field": lambda content: changed(content, config={"block_size": 3}),
    "invalid config": lambda content: changed(content, config={"block_size_m": 64}),
    "not a number": lambda content: changed(content, config={"block_size_m": "128"}),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_and_replaced(monkeypatch, kind):
    calls = []
    autotune.choose(PROBLEM, prepared(calls))
    path = autotune.path_of(PROBLEM)
    good = path.read_text()
    path.write_text(BAD[kind](json.loads(good)))
    monkeypatch.setattr(autotune, "_chosen", {})
    with pytest.warns(RuntimeWarning, match=f"{path.name} is not used: .*tuning anew"):
        autotune.choose(PROBLEM, prepared(calls))
    assert len(calls) == 2 and path.read_text() == good


def test_what_cant_be_written_is_told(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning) as told:
        assert autotune.choose(PROBLEM, prepared([])) == autotune.candidates(PROBLEM)[3]
    assert "can't be written" in str(told[-1].message)


def test_threads_tune_once():
    calls = []
    threads = [
        threading.Thread(target=autotune.choose, args=(PROBLEM, prepared(calls))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def write_often(cache):
    import os

    os.environ["TLX_CLC_CACHE"] = cache
    for _ in range(200):
        autotune.save(PROBLEM, CONFIG, 1.0)


def test_processes_never_leave_half_a_file(tmp_path):
    context = multiprocessing.get_context("spawn")
    cache = str(tmp_path / "cache")
    writers = [context.Process(target=write_often, args=(cache,)) for _ in range(2)]
    autotune.save(PROBLEM, CONFIG, 1.0)
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert autotune.load(PROBLEM) == CONFIG
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(list(autotune.folder().iterdir())) == 1


def test_the_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("TLX_CLC_CACHE")
    assert str(autotune.folder()) == "/x/tlx_clc_plugin/autotune"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert str(autotune.folder()) == "/home/me/.cache/tlx_clc_plugin/autotune"


def test_operands_to_tune_with_lie_as_the_callers():
    buffer = torch.zeros(64, 80).half()
    for x in (buffer, buffer.t(), buffer[3:, 5:20], buffer[:, ::2], buffer[:1].expand(64, 80)):
        y = autotune.random_like(x, 0)
        assert (y.shape, y.stride(), y.dtype) == (x.shape, x.stride(), x.dtype)
        assert y.data_ptr() % 16 == x.data_ptr() % 16
        assert y.float().std() > 0.5


def test_without_a_gpu_it_is_refused():
    a, b = operands()
    with EmulatedDevice(arch="sm_90a"):
        for call in (tlx_clc_plugin.matmul, tlx_clc_plugin.plan):
            with pytest.raises(RuntimeError, match="'autotune' needs a GPU, and a is on cpu"):
                call(a, b, schedule="dynamic", config="autotune")
            with pytest.raises(ValueError, match="GemmConfig or 'autotune', got 'autotun'"):
                call(a, b, schedule="dynamic", config="autotun")


def test_the_flag(monkeypatch):
    args = flags.make_parser().parse_args(["--autotune", "--device", "emulated"])
    with pytest.raises(ValueError, match="--autotune needs a GPU"):
        flags.resolve(args)
    seen = []
    for name in ("plan", "matmul"):
        monkeypatch.setattr(
            f"tlx_clc_plugin.gemm.{name}",
            lambda *a, config, name=name, **k: seen.append((name, config)),
        )
    assert autotuned(BACKENDS["aten_matmul"]) is BACKENDS["aten_matmul"]
    backend = autotuned(BACKENDS["tlx_dynamic"])
    call = backend.prepare(None, None, None)
    assert seen == [("plan", "autotune")] and backend.name == "tlx_dynamic"
    call()
    assert seen[1:] == [("matmul", "autotune")]

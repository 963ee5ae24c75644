"""ci/hopper-first-call: its child in the emulator, and its table."""

import json
import sys

import pytest
from ci_scripts import load

import tlx_clc_plugin
from tlx_clc_plugin.emulator import EmulatedDevice


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return load("hopper-first-call")


def test_shapes_have_the_kernels_that_are_told(script):
    from tlx_clc_plugin.heuristics import select_config

    kernels = []
    for M, N, K in script.SHAPES:
        config = select_config(M, N, K, 132, schedule="dynamic", bias=False, arch="hopper")
        kernels.append((config.block_size_m, config.block_size_n, config.split_k > 1))
    assert len(set(kernels[:4])) == 4 and kernels[4] == kernels[0] and kernels[5] == kernels[0]
    assert script.SHAPES[4] == script.SHAPES[5] and len(set(script.SHAPES)) == 5


def test_a_process_tells_time_and_compilation_and_fails_if_wrong(
    script, monkeypatch, tmp_path, capsys
):
    import triton

    monkeypatch.setattr(script, "SHAPES", ((24, 40, 72), (40, 24, 72)))
    monkeypatch.setattr(triton.knobs.compilation, "listener", None)
    with EmulatedDevice(arch="sm_90a"):
        assert script.child("tlx_dynamic", "cpu") == 0
        calls = json.loads(capsys.readouterr().out)
        assert [call["shape"] for call in calls] == [[24, 40, 72], [40, 24, 72]]
        assert all(call["seconds"] > 0 for call in calls)
        # One tile serves both shapes.
        assert not calls[1]["new_kernel"]
        matmul = tlx_clc_plugin.matmul
        monkeypatch.setattr(tlx_clc_plugin, "matmul", lambda *a, **k: matmul(*a, **k).neg_())
        assert script.child("tlx_dynamic", "cpu") == 1
    assert "tlx_dynamic 24x40x72: error" in capsys.readouterr().err


def test_the_table_has_medians_and_extremes(script, monkeypatch):
    monkeypatch.setattr(script, "SHAPES", ((1, 2, 3), (4, 5, 6), (4, 5, 6)))

    def run(*seconds):
        calls = zip(script.SHAPES, seconds, strict=True)
        return [{"shape": s, "seconds": t, "new_kernel": t > 1} for s, t in calls]

    rows = script.table("tlx_dynamic", "empty", [run(3, 2, 0.1), run(9, 2, 0.1), run(4, 2, 0.4)])
    assert rows == [
        ("tlx_dynamic", "empty", (1, 2, 3), "first call", "yes", 4, 3, 9),
        ("tlx_dynamic", "empty", (4, 5, 6), "new shape", "yes", 2, 2, 2),
        ("tlx_dynamic", "empty", (4, 5, 6), "shape again", "no", 0.1, 0.1, 0.4),
    ]


def test_a_failing_process_fails_the_script(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "__file__", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["hopper-first-call", "--repeats", "1"])
    assert script.main() == 1
    assert "torch.matmul failed" in capsys.readouterr().err

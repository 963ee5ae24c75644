"""ci/hopper-sanitizer: its sweep in the emulator, and what it makes of a tool's log."""

import os
import sys

import pytest
from ci_scripts import FOLDER, load

import tlx_clc_plugin
from tlx_clc_plugin.emulator import EmulatedDevice

RIGHT = {
    "memcheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= COMPUTE-SANITIZER\n"
    "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
    "synccheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
}


@pytest.fixture
def script(monkeypatch):
    # Not written beside the scripts.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return load("hopper-sanitizer")


def test_the_sweep_tells_right_from_wrong(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "SWEEP", script.SWEEP[:1])
    with EmulatedDevice(arch="sm_90a"):
        assert script.sweep("dynamic", "cpu") == 0
        assert capsys.readouterr().out.endswith("again: right\n2 results right\n")
        matmul = tlx_clc_plugin.matmul
        monkeypatch.setattr(tlx_clc_plugin, "matmul", lambda *a, **k: matmul(*a, **k).mul_(1.01))
        assert script.sweep("dynamic", "cpu") == 1
    assert "times the bound" in capsys.readouterr().out


def test_every_config_of_the_sweep_is_valid_for_both_kernels(script):
    from tlx_clc_plugin.config import violations

    for schedule in script.SCHEDULES:
        for _, _, _, bias, changes in script.SWEEP:
            config = script.sweep_config(changes)
            assert violations(config, schedule, bias=bias, arch="hopper") == ()


@pytest.mark.parametrize("tool", RIGHT)
def test_a_run_is_clean_only_if_tool_and_sweep_say_so(script, tool):
    right = f"{2 * len(script.SWEEP)} results right\n"
    assert script.judge(tool, 0, right, RIGHT[tool]) == ""
    assert script.judge(tool, 0, right, "") == "exit status 0"
    assert script.judge(tool, None, right, RIGHT[tool]).startswith("stopped after")
    assert script.judge(tool, 1, "No GPU\n", RIGHT[tool]) == "exit status 1: No GPU"
    assert script.judge(tool, 0, "1 results right\n", RIGHT[tool]) == (
        "exit status 0: 1 results right"
    )


@pytest.mark.parametrize(
    ("tool", "found", "told"),
    [
        (
            "memcheck",
            "========= Invalid __global__ write of size 4 bytes\n=========     at kernel+0x10\n"
            "========= ERROR SUMMARY: 1 error\n",
            "ERROR SUMMARY: 1 error: Invalid __global__ write of size 4 bytes",
        ),
        (
            "racecheck",
            "========= Warning: Race reported between Write access at k+0x1 [8 hazards]\n"
            "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n",
            "RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning): Warning: Race reported "
            "between Write access at k+0x1 [8 hazards]",
        ),
        (
            "synccheck",
            "========= Error: Device not supported\n",
            "exit status 0: Error: Device not supported",
        ),
    ],
)
def test_what_a_tool_found_is_told(script, tool, found, told):
    log = "========= COMPUTE-SANITIZER\n" + found
    assert script.judge(tool, 0, f"{2 * len(script.SWEEP)} results right\n", log) == told


def test_a_run_under_a_tool(script, tmp_path, capsys, monkeypatch):
    """With a stand-in for the tool that notes its command and ends as a clean run does."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/command\n'
        f"printf '{RIGHT['racecheck']}' >\"$4\"\n"
        f"echo $PYTORCH_NO_CUDA_MEMORY_CACHING; echo {2 * len(script.SWEEP)} results right\n"
    )
    tool.chmod(0o755)
    assert script.run(str(tool), "racecheck", "dynamic", tmp_path)
    assert capsys.readouterr().out.startswith("racecheck  tlx_dynamic     clean  (")
    command = (tmp_path / "command").read_text().split()
    assert command[:2] == ["--tool", "racecheck"] and command[-2:] == ["--sweep", "dynamic"]
    assert command[-3] == str(FOLDER / "hopper-sanitizer")
    assert (tmp_path / "racecheck-dynamic.out").read_text().startswith("1\n")
    # A log that an earlier run left is no evidence.
    tool.write_text(f"#!/bin/sh\necho {2 * len(script.SWEEP)} results right\n")
    assert not script.run(str(tool), "racecheck", "dynamic", tmp_path)
    monkeypatch.setattr(script, "TIMEOUT_S", 0.1)
    tool.write_text("#!/bin/sh\nsleep 100\n")
    assert not script.run(str(tool), "racecheck", "dynamic", tmp_path)
    assert "stopped after 0.1 s" in capsys.readouterr().out


def test_without_the_tool_nothing_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "TOOL_DIRECTORIES", (str(tmp_path),))
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["hopper-sanitizer", "-o", str(tmp_path / "logs")])
    with pytest.raises(SystemExit) as stop:
        script.main()
    assert stop.value.code == 2 and "no compute-sanitizer on PATH" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()

"""The hand-over around a harness: stand-ins for it write the events that its processes would."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tlx_clc_plugin.harness import arguments, handover
from tlx_clc_plugin.harness.events import Log
from tlx_clc_plugin.harness.locate import UnusableHarness, locate

ROOT = Path(__file__).resolve().parents[1]

# Runs the backends that --only names, and does with each what its name says.
STAND_IN = """
import ctypes, json, sys, time
from tlx_clc_plugin.harness.events import Log
argv = sys.argv[1:]
assert argv[:2] == ["--launch", "tlx_clc_plugin.harness.launch"], argv
log = Log.of_this_run()
def value(flag):
    places = [i for i, argument in enumerate(argv) if argument == flag]
    return argv[places[-1] + 1] if places else ""
log.write("request", ops=["gemm"])
results = {}
for name in value("--only").split(","):
    where = {"op": "gemm", "backend": name, "input": "(1, 2, 3)", "input_id": 0, "inputs": 1}
    log.write("begin", time=time.time(), **where)
    if name == "hangs":
        time.sleep(60)
    if name == "dies":
        ctypes.string_at(0)
    if name == "raises":
        log.write("end", error="no; luck\\nat all", **where)
        continue
    log.write("end", inaccurate="off" if name == "wrong" else "", missing=[], **where)
    results[f"tritonbench_gemm_fwd[x_(1, 2, 3)-{name}]_latency"] = "1"
if value("--output-json"):
    open(value("--output-json"), "w").write(json.dumps(results))
sys.exit(int(value("--status") or 0))
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "run.py").write_text(STAND_IN)
    return tmp_path / "harness"


def hand_over(capfd, checkout, *argv):
    status = handover.run(checkout, ["--op", "gemm", *argv])
    lines = capfd.readouterr().err.splitlines()
    return status, [line.removeprefix("tritonbench: ") for line in lines]


def test_all_well(capfd, checkout, tmp_path):
    out = tmp_path / "out.json"
    assert hand_over(capfd, checkout, "--only", "good", "--output-json", str(out)) == (0, [])
    assert json.loads(out.read_text()) == {"tritonbench_gemm_fwd[x_(1, 2, 3)-good]_latency": "1"}


def test_failures_are_named(capfd, checkout):
    status, lines = hand_over(capfd, checkout, "--only", "wrong,good,raises")
    assert status == 1
    assert lines == ["gemm wrong (1, 2, 3): inaccurate, off", "gemm raises (1, 2, 3): no; luck"]


@pytest.mark.parametrize("name, how", [("hangs", "stopped after 1 s"), ("dies", "SIGSEGV")])
def test_the_others_run_again_without_a_backend_that_ends_the_process(
    capfd, checkout, tmp_path, name, how
):
    out = tmp_path / "out.json"
    only = ["--only", f"good,{name},wrong", "--timeout", "1", "--output-json", str(out)]
    status, lines = hand_over(capfd, checkout, *only)
    assert status == 1
    assert [line for line in lines if name in line and how in line]
    assert lines[-1] == "gemm wrong (1, 2, 3): inaccurate, off"
    assert {key.split("-")[1].split("]")[0] for key in json.loads(out.read_text())} == {
        "good",
        "wrong",
    }


def test_nothing_left_to_run(capfd, checkout):
    status, lines = hand_over(capfd, checkout, "--only", "dies")
    assert status == 1 and len(lines) == 1 and "SIGSEGV" in lines[0]


def test_a_status_without_a_reason_is_a_failure(capfd, checkout):
    status, lines = hand_over(capfd, checkout, "--only", "good", "--status", "3")
    assert (status, lines) == (1, ["tritonbench's process ended with status 3"])


def test_an_empty_table_is_a_failure(capfd, checkout, tmp_path):
    (checkout / "run.py").write_text(STAND_IN.replace('value("--only").split(",")', "[]"))
    out = tmp_path / "out.json"
    status, lines = hand_over(capfd, checkout, "--only", "good", "--output-json", str(out))
    assert status == 1
    assert lines == ["gemm: no results", f"{out}: no results, it holds {{}}"]


def test_inputs_that_were_not_reached(capfd, checkout):
    (checkout / "run.py").write_text(STAND_IN.replace('"inputs": 1', '"inputs": 3'))
    status, lines = hand_over(capfd, checkout, "--only", "good")
    assert (status, lines) == (1, ["gemm: stopped after 1 of 3 inputs"])


def test_a_pass_of_zero_is_a_failure(capfd, checkout, tmp_path):
    text = STAND_IN.replace("results = {}", 'results = {"tritonbench_gemm_fwd-pass": 0}')
    (checkout / "run.py").write_text(text)
    out = tmp_path / "out.json"
    status, lines = hand_over(capfd, checkout, "--only", "good", "--output-json", str(out))
    assert (status, lines) == (1, [f"{out}: tritonbench_gemm_fwd-pass is 0"])


def test_what_the_harness_refuses(capfd, checkout):
    (checkout / "run.py").write_text(
        "import sys\nfrom tlx_clc_plugin.harness.events import Log\n"
        "Log.of_this_run().write('refused', reason='--only x: unknown')\nsys.exit(2)\n"
    )
    assert hand_over(capfd, checkout, "--only", "x") == (2, ["--only x: unknown"])


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--output-json", "no/such/x.json"], "--output-json"),
        (["--output-dir", "no/such"], "--output-dir"),
        (["--export-dir", "no/such"], "--export-dir"),
        (["--op", "gemm,addmm", "--output", "x.csv"], "--output with several operators"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused(capfd, checkout, argv, words):
    status, lines = hand_over(capfd, checkout, *argv)
    assert status == 2 and len(lines) == 1 and lines[0].startswith(words)


def test_interrupt_reaches_the_harness(capfd, checkout, tmp_path):
    marker = tmp_path / "interrupted"
    (checkout / "run.py").write_text(
        "import pathlib, time\n"
        f"try:\n    pathlib.Path({str(marker)!r}).write_text('')\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(marker)!r}).write_text('yes')\n"
    )

    def interrupt():
        while not marker.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # Background jobs, as CI may be one, start with SIGINT ignored.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        status, _ = hand_over(capfd, checkout)
    finally:
        signal.signal(signal.SIGINT, former)
    thread.join()
    assert status == 130 and marker.read_text() == "yes"


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.json").touch()
    argv = ["--output-json", "a", "--output=b/c", "--only", "d", "--dump-ir", "/e"]
    assert arguments.absolute_paths(argv) == [
        *("--output-json", str(tmp_path / "a"), f"--output={tmp_path / 'b/c'}"),
        *("--only", "d", "--dump-ir", "/e"),
    ]
    loaders = ["--input-loader", "here.json", "--input-loader", "collection.json"]
    assert arguments.absolute_paths(loaders)[1::2] == [
        str(tmp_path / "here.json"),
        "collection.json",
    ]


def test_a_line_still_being_written_is_left_out(tmp_path):
    log = Log(tmp_path / "log")
    assert log.read() == []
    log.write("begin", op="gemm")
    with log.path.open("a") as file:
        file.write('{"event": "en')
    assert [event["op"] for event in log.read()] == ["gemm"]


def test_an_installation_that_is_no_checkout_is_unusable(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tritonbench"]:
        monkeypatch.delitem(sys.modules, name)
    assert locate() is None
    (tmp_path / "tritonbench").mkdir()
    (tmp_path / "tritonbench" / "__init__.py").touch()
    importlib.invalidate_caches()
    with pytest.raises(UnusableHarness, match="run.py"):
        locate()


def get_harness(tmp_path, home):
    # Nothing can be cloned: all addresses lead to a folder that isn't there.
    nowhere = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{tmp_path}/nowhere/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://",
    }
    return subprocess.run(
        [ROOT / "ci" / "get-harness"],
        env={**os.environ, **nowhere, "TRITONBENCH_HOME": str(home)},
        capture_output=True,
        text=True,
    )


def test_get_harness_without_a_network_says_what_to_do(tmp_path):
    done = get_harness(tmp_path, tmp_path / "home")
    assert done.returncode == 1
    assert "git clone" in done.stderr and str(tmp_path / "home") in done.stderr
    assert not (tmp_path / "home").exists()


def test_get_harness_leaves_other_folders_alone(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").touch()
    done = get_harness(tmp_path, tmp_path / "home")
    assert done.returncode == 1 and "no checkout of tritonbench" in done.stderr
    assert (tmp_path / "home" / "thesis.txt").exists()

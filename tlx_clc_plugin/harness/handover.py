"""Runs the harness in a process of its own, and tells honestly what came of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import checks, verdict
from .arguments import (
    absolute_paths,
    harness_parser,
    harness_script,
    own_parser,
    without_backend,
)
from .events import Log

_POLL_SECONDS = 0.2


def run(checkout: Path, argv: list[str]) -> int:
    """Run the harness in ``checkout`` with the command line ``argv``; returns the exit status.

    0: every backend that was to run gave a result, accurate where that is judged. 1: not so, or
    the harness failed; each failure has a line on stderr, the other results are printed and
    written all the same. 2: the request makes no sense, nothing was run. 130: interrupted.

    With ``--timeout S`` a backend that takes longer for one input is stopped, and the run repeated
    without it.
    """
    own, _ = own_parser().parse_known_args(argv)
    argv = absolute_paths(argv)
    request, _ = harness_parser().parse_known_args(argv)
    if faults := list(checks.before_start(request)):
        return _refused(faults)
    lines = []
    while True:
        with tempfile.TemporaryDirectory(prefix="tlx_clc_") as scratch:
            log = Log(Path(scratch) / "events.jsonl")
            command = [sys.executable, *harness_script(checkout, argv)]
            status, hung = _supervise(command, log, own.timeout)
            events = log.read()
        if faults := [event["reason"] for event in events if event["event"] == "refused"]:
            return _refused(faults)
        lost = next(verdict.unfinished(events), None)
        if lost is None or status == 130:
            break
        # The harness writes nothing for a process that ends early: the others deserve a result.
        how = f"hangs, stopped after {own.timeout:g} s" if hung else f"its {verdict.ending(status)}"
        lines.append(f"{verdict.place(lost)}: {how}")
        argv = without_backend(argv, lost["backend"])
        if argv is None:
            return _failed(lines)
        _say(f"{lines[-1]}; once more without it")
    lines += verdict.failures(events, request, status)
    if status in (2, 130):
        return status
    return _failed(lines) if lines else 0


def _supervise(command: list[str], log: Log, timeout: float | None) -> tuple[int, bool]:
    """The command's exit status, and whether it had to be stopped."""
    # A session of its own, so that it can be stopped with all its children.
    process = subprocess.Popen(
        command, env=_environment(log), stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while True:
            try:
                return process.wait(_POLL_SECONDS if timeout else None), False
            except subprocess.TimeoutExpired:
                now = time.time()
                if any(now - e["time"] > timeout for e in verdict.unfinished(log.read())):
                    os.killpg(process.pid, signal.SIGKILL)
                    return process.wait(), True
    except KeyboardInterrupt:
        # The harness answers with the results so far.
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        return 130, False


def _environment(log: Log) -> dict[str, str]:
    """For a process that imports this package and the user's plugins wherever it runs."""
    package = str(Path(__file__).resolve().parents[2])
    path = [package, *filter(None, [os.environ.get("PYTHONPATH")]), os.getcwd()]
    return {**os.environ, **log.environment, "PYTHONPATH": os.pathsep.join(path)}


def _refused(faults: list[str]) -> int:
    for fault in faults:
        _say(fault)
    return 2


def _failed(lines: list[str]) -> int:
    for line in lines:
        _say(line)
    return 1


def _say(line: str) -> None:
    print(f"tritonbench: {line}", file=sys.stderr)

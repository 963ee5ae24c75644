"""From the events of a run to what the user has to know: one line per failure."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def failures(events: list[Event], request: argparse.Namespace, status: int) -> list[str]:
    """One line for each thing that went wrong, none if all is well.

    ``status``: how the harness's process ended, as subprocess tells. ``request``: for the files
    that should have been written.
    """
    of = {kind: [e for e in events if e["event"] == kind] for kind in {e["event"] for e in events}}
    lines = [f"{e['backend']}: not run, {e['reason']}" for e in of.get("unavailable", [])]
    for end in of.get("end", []):
        lines += _of_backend(end)
    lines += [f"tritonbench failed: {_short(e['error'])}" for e in of.get("failed", [])]

    if request.list_backends or request.list_metrics:
        return lines
    for op in of["request"][0]["ops"] if "request" in of else []:
        lines += _of_operator(op, of.get("end", []))
    if status and not lines:
        lines.append(f"tritonbench's {ending(status)}")
    return lines + (_of_json(Path(request.output_json)) if request.output_json else [])


def unfinished(events: list[Event]) -> Iterator[Event]:
    """The backends that began and have not ended, by their "begin"."""
    ended = {_key(e) for e in events if e["event"] == "end"}
    return (e for e in events if e["event"] == "begin" and _key(e) not in ended)


def place(event: Event) -> str:
    """Operator, backend and input, in words."""
    return f"{event['op']} {event['backend']} {event['input']}"


def ending(status: int) -> str:
    """How a process ended, in words."""
    if status < 0:
        return f"process died of {signal.Signals(-status).name}"
    return f"process ended with status {status}"


def _of_backend(end: Event) -> list[str]:
    if end.get("error"):
        return [f"{place(end)}: {_short(end['error'])}"]
    lines = []
    if end.get("inaccurate"):
        lines.append(f"{place(end)}: inaccurate, {_short(end['inaccurate'])}")
    if end.get("missing"):
        lines.append(f"{place(end)}: no {', '.join(end['missing'])}")
    return lines


def _of_operator(op: str, ends: list[Event]) -> Iterator[str]:
    mine = [e for e in ends if e["op"] == op]
    if not mine:
        yield f"{op}: no results"
    for pid in dict.fromkeys(e["pid"] for e in mine):
        of_process = [e for e in mine if e["pid"] == pid]
        done, planned = len({e["input_id"] for e in of_process}), of_process[0]["inputs"]
        if done < planned:
            yield f"{op}: stopped after {done} of {planned} inputs"


def _of_json(path: Path) -> list[str]:
    try:
        results = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        return [f"{path}: no results, {_short(str(error))}"]
    if not results:
        return [f"{path}: no results, it holds {{}}"]
    return [
        f"{path}: {key} is 0"
        for key, value in results.items()
        if key.endswith("-pass") and value == 0
    ]


def _key(event: Event) -> tuple:
    return event["pid"], event["op"], event["backend"], event["input_id"]


def _short(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[0][:300]

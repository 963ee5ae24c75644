"""``tlx-clc compare``: the verdict on a run, printed and written as JSON and Markdown."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import msgspec

from ..nightly.night import load_all, write_atomically
from .saved import WINDOW_NIGHTS, Refused, Saved, read, window
from .verdict import FAILING, GATES, ORDER, Gate, Judged, Report, both, doubts, judge, read_gates

_HEADERS = ("cell", "metric", "baseline", "now", "change", "verdict", "why")


def run(
    base: Path,
    head: Path,
    *,
    nights: Path | None = None,
    gates: Path | None = None,
    json: Path | None = None,
    markdown: Path | None = None,
) -> int:
    """Judge ``head`` against ``base``, both saved JSON of pytest-benchmark, and report.

    ``nights``: a directory of night files, whose last comparable ones are a second baseline.
    Returns 0 if all is well, 1 if a cell or the run fails, 2 if it can't be compared.
    """
    try:
        report = compare(base, head, nights, read_gates(gates) if gates else GATES)
    except Refused as error:
        print(f"tlx-clc compare: refused: {error}", file=sys.stderr)
        return 2
    print(to_text(report))
    try:
        if json is not None:
            write_atomically(json, to_json(report))
        if markdown is not None:
            write_atomically(markdown, to_markdown(report).encode())
    except OSError as error:
        print(f"tlx-clc compare: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0 if report.ok else 1


def compare(base: Path, head: Path, nights: Path | None, gates: tuple[Gate, ...] = GATES) -> Report:
    """The report on ``head``. Raises Refused if it can't be compared with ``base``, or if that is
    a noisy or host-bound baseline."""
    pinned, now = read(base), read(head)
    if words := "; ".join(doubts(pinned, gates)):
        raise Refused(f"{base} is no baseline: {words}")
    report = judge(pinned, now, gates)
    if nights is None:
        return report
    return both(report, _rolling(nights, now, gates))


def _rolling(directory: Path, now: Saved, gates: tuple[Gate, ...]) -> Report:
    if not directory.is_dir():
        raise Refused(f"{directory}: no such directory of nights")
    found, aside = load_all(directory)
    notes = [f"{path.name}: set aside, {reason}" for path, reason in aside]
    rolling = window(found, now)
    if rolling is None:
        return Report([], [*notes, f"no rolling window: fewer than {WINDOW_NIGHTS} such nights"])
    report = judge(rolling, now, gates)
    # What is new, and what has gone, is told by the pinned baseline alone.
    judged = [j for j in report.judged if j.change is not None]
    return Report(judged, [*notes, f"rolling window of {len(rolling.cells)} cells"])


def to_text(report: Report) -> str:
    """A table of what is not plainly ok, and a line that sums up."""
    from tabulate import tabulate

    rows = [_row(j) for j in _ordered(report) if j.why]
    parts = [tabulate(rows, headers=_HEADERS, disable_numparse=True)] if rows else []
    return "\n".join([*parts, *_sentences(report)])


def to_markdown(report: Report) -> str:
    """The same, for a comment or a job's summary."""
    lines = [*_sentences(report), ""]
    rows = [_row(j) for j in _ordered(report) if j.why]
    if rows:
        lines.append("| " + " | ".join(_HEADERS) + " |")
        lines.append("|" + " --- |" * len(_HEADERS))
        # A bar would end the cell, a line break the table, and < start HTML.
        escapes = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", "&": "&amp;", "`": "'"})
        lines += ["| " + " | ".join(text.translate(escapes) for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def to_json(report: Report) -> bytes:
    """All cells, the ok ones too; an infinite change is null."""
    content = {"status": report.verdict().status, **msgspec.to_builtins(report)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def _ordered(report: Report) -> list[Judged]:
    return sorted(report.judged, key=lambda j: (ORDER.index(j.word), j.cell))


def _row(j: Judged) -> list[str]:
    numbers = ["" if x is None else f"{x:.6g}" for x in (j.base, j.value)]
    change = "" if j.change is None else f"{j.change:+.1%}"
    return [j.cell, j.metric, *numbers, change, j.word, j.why]


def _sentences(report: Report) -> list[str]:
    counts = Counter(j.word for j in report.judged)
    told = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
    failing = sum(counts[word] for word in FAILING)
    summary = f"{len(report.judged)} benchmarks: {told or 'none'}."
    verdict = "ok" if report.ok else f"FAILED, by {failing} of them" if failing else "FAILED"
    return [*report.notes, *report.faults, f"{summary} {verdict}"]

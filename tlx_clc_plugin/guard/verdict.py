"""One run against a baseline: a word for every cell, and whether all is well.

A dual gate: a cell is slower (or faster) if its value differs from the baseline's both by more
than their noise bands account for and by more than matters (:class:`Gate`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ..nightly.night import Cell, CellVerdict, Record, Verdict, Word
from .saved import Refused, Saved, difference

FAILING: frozenset[Word] = frozenset({"slower", "wrong", "error", "missing"})
# Of two verdicts on one cell the one further left counts.
ORDER: tuple[Word, ...] = (
    "missing",
    "error",
    "wrong",
    "slower",
    "skipped",
    "noisy",
    "faster",
    "ok",
)
# A call whose host part takes longer than the GPU's times Python, not the kernel.
HOST_BOUND = 1.0


class Gate(Record):
    """For the cells whose ids match the pattern ``cells`` (of fnmatch): the least ``change`` that
    matters, as a ratio, and the least one that noise does not explain, in ``bands``: both runs'
    half noise bands, added in quadrature."""

    cells: str
    change: float
    bands: float = 1.0


# Where several match, the last counts.
GATES = (
    Gate("*", 0.03),
    # Counts of a compiler and of a deterministic emulator.
    Gate("*/emulated*", 0.005),
    Gate("*/compile/*", 0.005),
    # Host time, if only as ratios.
    Gate("*/compile/compile_ratio", 0.25),
    Gate("*/compile/plan_ratio", 0.25),
)


@dataclass(frozen=True)
class Judged:
    """``base``, ``value``: of the cell's metric; ``change`` = value / base - 1. None where there is
    no such number. ``why``: empty only for an unremarkable "ok"."""

    cell: str
    metric: str
    word: Word
    why: str
    base: float | None = None
    value: float | None = None
    change: float | None = None


@dataclass(frozen=True)
class Report:
    """``notes``: what concerns no single cell. ``faults``: what fails the run as a whole."""

    judged: list[Judged]
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.faults and not any(j.word in FAILING for j in self.judged)

    def verdict(self) -> Verdict:
        """For the night's file."""
        cells = {j.cell: CellVerdict(j.word, j.why) for j in self.judged}
        return Verdict("ok" if self.ok else "fail", cells)


def read_gates(path: Path) -> tuple[Gate, ...]:
    """Gates of a JSON file, a list of objects, after the built-in ones. Raises Refused."""
    try:
        return (*GATES, *msgspec.json.decode(path.read_bytes(), type=list[Gate]))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from None


def gate_of(cell: str, gates: tuple[Gate, ...]) -> Gate:
    """The last of ``gates`` that matches."""
    return next(gate for gate in reversed(gates) if fnmatchcase(cell, gate.cells))


def judge(base: Saved, head: Saved, gates: tuple[Gate, ...] = GATES) -> Report:
    """A word for every cell of either run. Raises Refused if the runs can't be compared."""
    if words := difference(base, head):
        raise Refused(words)
    before = {cell.id: cell for cell in base.cells}
    now = {cell.id: cell for cell in head.cells}
    judged = [
        _judge(name, before.get(name), now.get(name), gate_of(name, gates))
        for name in {**before, **now}
    ]
    compared = any(j.change is not None for j in judged)
    return Report(judged, faults=[] if compared else ["no benchmark could be compared"])


def doubts(base: Saved, gates: tuple[Gate, ...] = GATES) -> list[str]:
    """Why a run is no baseline to pin, in words: cells noisier than the change to be seen, or bound
    by the host."""
    found = []
    for cell in base.cells:
        if cell.status != "ok":
            continue
        if cell.value and half_band(cell) / cell.value > gate_of(cell.id, gates).change:
            found.append(f"{cell.id} is noisy, {cell.value:.4g} in {cell.low:.4g}..{cell.high:.4g}")
        host, gpu = (cell.figures.get(name) for name in ("host_us", "latency_us"))
        if cell.mode == "eager" and host and gpu and host > HOST_BOUND * gpu:
            found.append(f"{cell.id} is bound by the host, {host:.4g} us of {gpu:.4g} us")
    return found


def both(pinned: Report, rolling: Report) -> Report:
    """Of two reports on one run, the graver word on each cell."""
    judged = {j.cell: j for j in pinned.judged}
    for j in rolling.judged:
        other = judged.get(j.cell)
        if other is None or ORDER.index(j.word) < ORDER.index(other.word):
            judged[j.cell] = j
    notes, faults = pinned.notes + rolling.notes, pinned.faults + rolling.faults
    return Report(list(judged.values()), notes, faults)


def half_band(cell: Cell) -> float:
    """Half the width of the noise band."""
    return 0.0 if cell.low is None else (cell.high - cell.low) / 2


def _judge(name: str, base: Cell | None, head: Cell | None, gate: Gate) -> Judged:
    if head is None:
        why = "in the baseline, but not in this run: renamed, or not run"
        return Judged(name, base.metric, "missing", why, base.value)
    if head.status != "ok":
        return Judged(name, head.metric, head.status, head.reason, base and base.value)
    if base is None or base.status != "ok":
        why = "new: not in the baseline" if base is None else f"{base.status} in the baseline"
        return Judged(name, head.metric, "ok", why, None, head.value)
    if (base.metric, base.better) != (head.metric, head.better):
        why = f"measures {head.metric}, but {base.metric} in the baseline"
        return Judged(name, head.metric, "error", why, base.value, head.value)

    difference = head.value - base.value
    change = difference / base.value if base.value else math.copysign(math.inf, difference)
    change = 0.0 if difference == 0 else change
    matters = abs(change) > gate.change
    noise = math.hypot(half_band(base), half_band(head))
    significant = abs(difference) > gate.bands * noise
    why = ""
    if matters and significant:
        word = "faster" if (difference > 0) == (head.better == "higher") else "slower"
        why = f"{change:+.1%}, more than {gate.change:.1%} and than noise"
    elif head.value and half_band(head) / head.value > gate.change:
        word = "noisy"
        why = f"{head.low:.4g}..{head.high:.4g}: {gate.change:.1%} can't be seen"
    else:
        word = "ok"
        why = f"{change:+.1%}, within noise" if matters else ""
    return Judged(name, head.metric, word, why, base.value, head.value, change)

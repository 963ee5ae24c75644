"""What the dashboard says of the nights: per device its runs, and per cell where it stands.

Nothing here formats or writes; :mod:`.text` and :mod:`.render` show the same model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from statistics import quantiles

from ..guard.history import Regression, regressions, toolchain
from ..nightly.night import Cell, Night

# A nightly that is older has missed a night, also if that one took half a day.
STALE = timedelta(hours=36)
# Nights that a band is made of, and the fewest that make one.
BAND_NIGHTS, FEWEST_NIGHTS = 20, 5
# A cell not measured for as many nights is no longer missing but retired.
RETIRED_NIGHTS = 30
# Schedulers that take tiles at run time, next to the static tlx_persistent.
DYNAMIC = ("tlx_clc", "tlx_dynamic")
# Words that are no cause for a look.
QUIET = ("ok", "skipped")


@dataclass(frozen=True)
class Run:
    """One night on one device; of several nights if runners shared its cells (shards)."""

    nights: tuple[Night, ...]

    @property
    def started(self) -> datetime:
        return self.nights[0].started

    @property
    def finished(self) -> datetime:
        return max(night.finished for night in self.nights)

    @property
    def synthetic(self) -> bool:
        return any(night.synthetic for night in self.nights)

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Its cells by id."""
        return {cell.id: cell for night in self.nights for cell in night.cells}

    def word(self, cell: str) -> tuple[str, str]:
        """The word for a cell of this run, and why: the verdict's if it was measured."""
        found = self.cells[cell]
        if found.status != "ok":
            return found.status, found.reason
        for night in self.nights:
            if night.verdict and cell in night.verdict.cells:
                verdict = night.verdict.cells[cell]
                return verdict.word, verdict.why
        return "ok", ""


@dataclass(frozen=True)
class Band:
    """Where a value is expected: within Tukey's fences, 1.5 interquartile ranges beyond the
    quartiles, of the ``nights`` values before it."""

    low: float
    middle: float
    high: float
    nights: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Band | None:
        """The band of the last BAND_NIGHTS ``values``; None if they are too few."""
        values = values[-BAND_NIGHTS:]
        if len(values) < FEWEST_NIGHTS:
            return None
        first, middle, third = quantiles(values, method="inclusive")
        reach = 1.5 * (third - first)
        return cls(first - reach, middle, third + reach, len(values))


@dataclass(frozen=True)
class Row:
    """A cell today.

    ``cell`` is its latest record, of today unless ``last_seen`` tells a day. ``change`` is
    value / middle of the band - 1. ``values`` and ``cublas`` have an entry for each run of the
    device, None where there is none; cuBLAS's are microseconds.
    """

    cell: Cell
    word: str
    why: str
    band: Band | None
    values: tuple[float | None, ...]
    cublas: tuple[float | None, ...]
    cublas_band: Band | None
    last_seen: datetime | None = None

    @property
    def change(self) -> float | None:
        return _change(self.cell.value, self.band) if self.last_seen is None else None

    @property
    def cublas_us(self) -> float | None:
        return self.cublas[-1] if self.cublas else None

    @property
    def cublas_change(self) -> float | None:
        return _change(self.cublas_us, self.cublas_band)

    @property
    def standing(self) -> str:
        """ "better" or "worse" if the value with all of its noise lies outside the band."""
        cell, band = self.cell, self.band
        if cell.value is None or band is None or self.last_seen is not None:
            return ""
        low = cell.value if cell.low is None else cell.low
        high = cell.value if cell.high is None else cell.high
        if low > band.high:
            return "better" if cell.better == "higher" else "worse"
        if high < band.low:
            return "worse" if cell.better == "higher" else "better"
        return ""

    @property
    def stands_out(self) -> bool:
        """Whether somebody should look at it."""
        return self.word not in QUIET or self.standing != ""


@dataclass(frozen=True)
class Pair:
    """The static persistent schedule and a dynamic one, on the same problem today."""

    persistent: Cell
    dynamic: Cell

    @property
    def difference(self) -> float:
        """Gain of the dynamic one: 0.02 if it is 2 % better."""
        ratio = self.dynamic.value / self.persistent.value
        return (ratio if self.dynamic.better == "higher" else 1 / ratio) - 1

    @property
    def clear(self) -> bool:
        """Whether their noise bands lie apart."""
        a, b = self.persistent, self.dynamic
        if a.low is None or b.low is None:
            return a.value != b.value
        return a.high < b.low or b.high < a.low


@dataclass(frozen=True)
class Device:
    """What was measured on one kind of GPU, or on none; ``runs`` by time, at least one."""

    name: str
    runs: tuple[Run, ...]
    regressions: tuple[Regression, ...]

    @property
    def today(self) -> Run:
        return self.runs[-1]

    def stale(self, now: datetime) -> bool:
        """Whether a night has been missed."""
        return now - self.today.started > STALE

    def latest(self, cell: str) -> Cell:
        """The latest record of a cell."""
        return self.runs[self._last_seen[cell]].cells[cell]

    @cached_property
    def rows(self) -> list[Row]:
        """Today's cells, then those that are missing today, in the order of their first sight."""
        return [self._row(cell) for cell in self._last_seen if cell not in self._retired]

    @cached_property
    def retired(self) -> list[Row]:
        """Cells not measured for RETIRED_NIGHTS."""
        return [self._row(cell) for cell in self._last_seen if cell in self._retired]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Persistent against dynamic, where both have a result today."""
        found = {}
        for cell in self.today.cells.values():
            if cell.value:
                shape = tuple(cell.shape)
                problem = cell.op, shape, cell.dtype, cell.layout, cell.mode, cell.metric
                found.setdefault(problem, {})[cell.backend] = cell
        return [
            Pair(backends["tlx_persistent"], backends[name])
            for backends in found.values()
            for name in DYNAMIC
            if name in backends and "tlx_persistent" in backends
        ]

    @cached_property
    def _last_seen(self) -> dict[str, int]:
        """Each cell's last run; today's cells first, in today's order."""
        last = {cell: len(self.runs) - 1 for cell in self.today.cells}
        for index in range(len(self.runs) - 2, -1, -1):
            for cell in self.runs[index].cells:
                last.setdefault(cell, index)
        return last

    @cached_property
    def _retired(self) -> set[str]:
        oldest = len(self.runs) - RETIRED_NIGHTS
        return {cell for cell, last in self._last_seen.items() if last < oldest}

    @cached_property
    def _comparable(self) -> int:
        """The first of the latest runs that share today's toolchain."""
        wanted = toolchain(self.today.nights[0])
        index = len(self.runs) - 1
        while index and toolchain(self.runs[index - 1].nights[0]) == wanted:
            index -= 1
        return index

    def _row(self, identity: str) -> Row:
        last, cell = self._last_seen[identity], self.latest(identity)
        word, why = self.runs[last].word(identity)
        last_seen = None
        if last != len(self.runs) - 1:
            last_seen = self.runs[last].started
            word, why = "missing", f"not in today's results; last there on {last_seen:%Y-%m-%d}"
        history = [run.cells.get(identity) for run in self.runs]
        values = [None if cell is None else cell.value for cell in history]
        cublas = [None if cell is None else cell.figures.get("cublas_us") for cell in history]
        return Row(
            cell,
            word,
            why,
            self._band(values),
            tuple(values),
            tuple(cublas) if any(us is not None for us in cublas) else (),
            self._band(cublas),
            last_seen,
        )

    def _band(self, series: Sequence[float | None]) -> Band | None:
        return Band.of([value for value in series[self._comparable : -1] if value is not None])


def devices(nights: Iterable[Night]) -> list[Device]:
    """The devices that ``nights`` were measured on, the one of the latest night first."""
    by_device: dict[tuple[object, ...], dict[str, list[Night]]] = {}
    for night in sorted(nights, key=lambda night: night.started):
        gpu = night.gpu
        key = night.runner.lane, gpu and (gpu.name, gpu.capability, gpu.sms)
        by_device.setdefault(key, {}).setdefault(night.commit.sha, []).append(night)
    found = []
    for (lane, gpu), commits in by_device.items():
        runs = tuple(Run(tuple(shards)) for shards in commits.values())
        losses = regressions([night for shards in commits.values() for night in shards])
        name = f"{gpu[0]}, {gpu[2]} SMs" if gpu else f"Without a GPU ({lane})"
        found.append(Device(name, runs, tuple(losses)))
    return sorted(found, key=lambda device: device.today.started, reverse=True)


def _change(value: float | None, band: Band | None) -> float | None:
    return None if value is None or band is None or not band.middle else value / band.middle - 1

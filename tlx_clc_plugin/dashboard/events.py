"""What happened around the values: marked lines in the charts, and lines in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from datetime import time as clock
from itertools import pairwise

from .links import change
from .model import Device, Run
from .notes import Note
from .text import percent


@dataclass(frozen=True)
class Event:
    """``kind``: toolchain, runner, config, regression, recovery or note. ``label``: in a word."""

    time: datetime
    kind: str
    label: str
    text: str
    url: str | None = None


def surroundings(runs: Sequence[Run]) -> list[Event]:
    """Changes of what else than our code makes a value, by time."""
    return [
        Event(after.started, kind, name, f"{name} {was} → {now}")
        for before, after in pairwise(runs)
        for (kind, name, was), (_, _, now) in zip(
            _surroundings(before), _surroundings(after), strict=True
        )
        if was != now
    ]


def of_cell(
    cell: str, device: Device, common: Sequence[Event], notes: Sequence[Note]
) -> list[Event]:
    """What happened to a cell: its configs, losses and notes, and what was ``common`` to all."""
    own = [*_configs(cell, device.runs), *_losses(cell, device), *_notes(cell, notes)]
    return sorted([*common, *own], key=lambda event: event.time)


def _surroundings(run: Run) -> list[tuple[str, str, str]]:
    night = run.nights[0]
    gpu, versions = night.gpu, night.versions
    return [
        ("toolchain", "driver", gpu.driver if gpu else "none"),
        ("toolchain", "power limit", f"{gpu.power_limit_w:g} W" if gpu else "none"),
        ("toolchain", "fbtriton", versions.fbtriton),
        ("toolchain", "torch", versions.torch),
        ("toolchain", "CUDA", versions.cuda or "none"),
        ("toolchain", "Python", versions.python),
        ("toolchain", "harness", night.runner.harness),
        ("runner", "runner", ", ".join(dict.fromkeys(n.runner.name for n in run.nights))),
    ]


def _configs(cell: str, runs: Sequence[Run]) -> Iterator[Event]:
    known = [(run, run.cells[cell].config) for run in runs if cell in run.cells]
    for (_, was), (run, now) in pairwise([(run, config) for run, config in known if config]):
        if was != now:
            yield Event(run.started, "config", "config", f"{was} → {now}", run.nights[0].commit.url)


def _losses(cell: str, device: Device) -> Iterator[Event]:
    for loss in device.regressions:
        if loss.cell == cell:
            size = percent(loss.change)
            words = f"{loss.kind} of {size}, first at {loss.first_bad_sha[:12]}"
            url = change(loss, device)
            yield Event(loss.first_bad_night, "regression", size, words, url)
            if loss.recovered:
                yield Event(loss.recovered, "recovery", "recovered", f"recovered from {size}")


def _notes(cell: str, notes: Sequence[Note]) -> Iterator[Event]:
    for note in notes:
        if note.concerns(cell):
            time = datetime.combine(note.day, clock(), timezone.utc)
            yield Event(time, "note", "note", note.text)

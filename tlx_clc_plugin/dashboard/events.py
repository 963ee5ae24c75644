"""What happened around the values: marked lines in the charts, and lines in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from .links import change
from .model import Device, Run
from .notes import Note


@dataclass(frozen=True)
class Event:
    """``kind``: toolchain, runner, config, regression, recovery or note. ``url`` may be None."""

    time: datetime
    kind: str
    text: str
    url: str | None = None


def surroundings(runs: Sequence[Run]) -> list[Event]:
    """Changes of what else than our code makes a value, by time."""
    return [
        Event(after.started, kind, f"{name} {was} → {now}")
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
    found = [*common, *_configs(cell, device.runs), *_losses(cell, device), *_notes(cell, device, notes)]
    return sorted(found, key=lambda event: event.time)


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
            yield Event(run.started, "config", f"config {was} → {now}", run.nights[0].commit.url)


def _losses(cell: str, device: Device) -> Iterator[Event]:
    for loss in device.regressions:
        if loss.cell == cell:
            words = f"{loss.kind} of {loss.change:+.1%}, first at {loss.first_bad_sha[:12]}"
            yield Event(loss.first_bad_night, "regression", words, change(loss, device))
            if loss.recovered:
                yield Event(loss.recovered, "recovery", f"recovered from {loss.change:+.1%}")


def _notes(cell: str, device: Device, notes: Sequence[Note]) -> Iterator[Event]:
    zone = device.today.started.tzinfo
    for note in notes:
        if note.concerns(cell):
            time = datetime(note.day.year, note.day.month, note.day.day, tzinfo=zone)
            yield Event(time, "note", note.text)

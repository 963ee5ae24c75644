"""The facts of the front page as plain text and as JSON, and how figures are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tabulate import tabulate

from ..guard.history import Regression
from . import links
from .model import Device, Row
from .notes import Note

KIND, SCHEMA = "tlx_clc_plugin.dashboard", 1
METRICS = {"ratio_to_cublas": "ratio to cuBLAS"}


def figure(value: float | None, metric: str = "") -> str:
    """A value of ``metric`` as text: three decimals of a ratio, else at most four digits or a
    whole number; n/a for None."""
    if value is None:
        return "n/a"
    if metric == "ratio_to_cublas":
        return f"{value:.3f}"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def percent(change: float | None) -> str:
    """A relative change: +1.5 %; n/a for None."""
    if change is None:
        return "n/a"
    return f"{round(change, 3) + 0.0:+.1%}".replace("%", " %").replace("-", "−")


def metric_name(metric: str) -> str:
    """A metric's name for people."""
    return METRICS.get(metric, metric.replace("_", " "))


def when(time: datetime) -> str:
    """A time as text, in its zone."""
    return f"{time:%Y-%m-%d %H:%M} {time.tzname()}"


def summary(device: Device) -> str:
    """How many cells stand how: "58 ok, 1 slower, 1 error"."""
    return ", ".join(f"{count} {word}" for word, count in counts(device).items())


def counts(device: Device) -> dict[str, int]:
    """Number of today's cells by word, the most frequent first."""
    return dict(Counter(row.word for row in device.rows).most_common())


def as_text(
    devices: Sequence[Device],
    notes: Sequence[Note],
    aside: Sequence[tuple[str, str]],
    built: datetime,
) -> str:
    """The front page as text; ``aside`` are files that could not be used, and why."""
    lines = [f"tlx_clc_plugin, nights until {when(built)}"]
    for device in devices:
        lines += ["", *_device(device, built)]
    if notes:
        lines += ["", "Notes", *(f"  {note.day} {note.cells}: {note.text}" for note in notes)]
    if aside:
        lines += ["", "Set aside", *(f"  {name}: {why}" for name, why in aside)]
    return "\n".join("".join(map(_plain, line)) for line in lines) + "\n"


def as_json(
    devices: Sequence[Device],
    notes: Sequence[Note],
    aside: Sequence[tuple[str, str]],
    built: datetime,
) -> dict[str, Any]:
    """The front page for programs: regressions.json. Times are ISO 8601."""
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "built": built.isoformat(),
        "devices": [
            {
                "name": device.name,
                "last_run": device.today.started.isoformat(),
                "stale": device.stale(built),
                "synthetic": device.today.synthetic,
                "synthetic_nights": sum(run.synthetic for run in device.runs),
                "nights": len(device.runs),
                "commit": device.today.nights[0].commit.sha,
                "regressions": [_loss(device, loss) for loss in device.regressions],
                "cells": [_row(row) for row in device.rows],
                "pairs": [
                    {
                        "persistent": pair.persistent.id,
                        "dynamic": pair.dynamic.id,
                        "difference": pair.difference,
                        "clear": pair.clear,
                    }
                    for pair in device.pairs
                ],
                "retired": [row.cell.id for row in device.retired],
            }
            for device in devices
        ],
        "notes": [
            {"day": note.day.isoformat(), "cells": note.cells, "text": note.text} for note in notes
        ],
        "set_aside": [{"file": name, "why": why} for name, why in aside],
    }


def _device(device: Device, built: datetime) -> list[str]:
    run, commit = device.today, device.today.nights[0].commit
    lines = [
        f"{device.name}: {summary(device)}",
        f"  {when(run.started)}, commit {commit.sha[:12]} {commit.subject}",
    ]
    if device.stale(built):
        lines.append(
            f"  STALE: no night since {(built - run.started).total_seconds() / 86400:.1f} days"
        )
    made_up = sum(each.synthetic for each in device.runs)
    if made_up:
        lines.append(f"  SYNTHETIC: {made_up} of {len(device.runs)} nights are made up")
    for night in run.nights:
        lines += [
            f"  step {step.name} {step.status}: {step.reason}"
            for step in night.steps
            if step.status != "ok"
        ]
    lines += ["", "  Regressions" if device.regressions else "  No regressions"]
    lines += [f"  {line}" for loss in device.regressions for line in _loss_lines(device, loss)]
    table = [
        [
            row.cell.id,
            figure(None if row.last_seen else row.cell.value, row.cell.metric),
            percent(row.change),
            f"{figure(row.band.low, row.cell.metric)}–{figure(row.band.high, row.cell.metric)}"
            if row.band
            else "n/a",
            figure(row.cublas_us),
            row.word,
            row.standing and f"{row.standing} than the band",
            row.why,
        ]
        for row in device.rows
    ]
    headers = ["cell", "value", "change", "band", "cuBLAS µs", "word", "", ""]
    text = tabulate(table, headers, disable_numparse=True)
    lines += ["", *(f"  {line.rstrip()}" for line in text.splitlines())]
    if device.pairs:
        lines += ["", "  Dynamic schedule against static persistent"]
        lines += [
            f"  {pair.dynamic.id}: {percent(pair.difference)}"
            f"{'' if pair.clear else ' (within noise)'}"
            for pair in device.pairs
        ]
    return lines


def _loss_lines(device: Device, loss: Regression) -> list[str]:
    state = f"recovered {loss.recovered:%Y-%m-%d}" if loss.recovered else "stands"
    lines = [
        f"{loss.cell}: {loss.kind} of {percent(loss.change)} since "
        f"{loss.first_bad_night:%Y-%m-%d}, commit {loss.first_bad_sha[:12]}; {state}"
    ]
    url = links.change(loss, device)
    return [*lines, f"  {url}"] if url else lines


def _loss(device: Device, loss: Regression) -> dict[str, Any]:
    return {
        "cell": loss.cell,
        "kind": loss.kind,
        "before": loss.before,
        "after": loss.after,
        "change": loss.change,
        "first_bad_night": loss.first_bad_night.isoformat(),
        "first_bad_sha": loss.first_bad_sha,
        "last_good_sha": loss.last_good_sha,
        "recovered": loss.recovered.isoformat() if loss.recovered else None,
        "change_url": links.change(loss, device),
        "page": links.page(device, loss.cell),
    }


def _row(row: Row) -> dict[str, Any]:
    cell, band = row.cell, row.band
    return {
        "id": cell.id,
        "word": row.word,
        "why": row.why,
        "standing": row.standing,
        "metric": cell.metric,
        "value": None if row.last_seen else cell.value,
        "noise": None if row.last_seen or cell.low is None else [cell.low, cell.high],
        "band": band and {"low": band.low, "middle": band.middle, "high": band.high},
        "change": row.change,
        "cublas_us": row.cublas_us,
        "repro": cell.repro,
    }


def _plain(char: str) -> str:
    """No control characters from a file reach a terminal."""
    return char if char.isprintable() else "�"

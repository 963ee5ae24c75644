"""The site: static pages that open from a disk, and the same facts as index.txt and
regressions.json. All that nights and notes say is escaped, and pages allow no script but ours."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from . import events, links, text
from .compact import columns, script_json
from .model import Device, Row, Run
from .notes import Note

# Runs that a sparkline shows, and that a cell's table of nights lists.
SPARK_RUNS, LISTED_RUNS = 60, 30


class SiteError(ValueError):
    """The output is something that must not be overwritten."""


def write(
    site: Path,
    devices: Sequence[Device],
    notes: Sequence[Note],
    aside: Sequence[tuple[str, str]],
    built: datetime,
) -> None:
    """Write the site in place of an earlier one, whole or not at all.

    Raises SiteError if ``site`` is there, not empty, and no dashboard; OSError if it can't be
    written.
    """
    if site.exists() and not _replaceable(site):
        raise SiteError(f"{site} is there and is no dashboard: not overwritten")
    site.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{site.name}.", dir=site.parent))
    try:
        os.chmod(made, 0o755)
        _fill(made, devices, notes, aside, built)
        if site.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{site.name}.", dir=site.parent))
            os.replace(site, old)
            os.replace(made, site)
            shutil.rmtree(old)
        else:
            os.replace(made, site)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _replaceable(site: Path) -> bool:
    if not site.is_dir():
        return False
    try:
        facts = json.loads((site / "regressions.json").read_bytes())
    except (OSError, ValueError):
        return not any(site.iterdir())
    return isinstance(facts, dict) and facts.get("kind") == text.KIND


def _fill(
    folder: Path,
    devices: Sequence[Device],
    notes: Sequence[Note],
    aside: Sequence[tuple[str, str]],
    built: datetime,
) -> None:
    with as_file(files(__package__) / "static") as static:
        shutil.copytree(static, folder / "static")
    facts = devices, notes, aside, built
    (folder / "index.txt").write_text(text.as_text(*facts), encoding="utf-8")
    whole = json.dumps(text.as_json(*facts), indent=1, allow_nan=False)
    (folder / "regressions.json").write_text(whole + "\n", encoding="utf-8")
    (folder / "cells").mkdir()
    pages = _environment()
    template = pages.get_template("cell.html")
    for number, device in enumerate(devices):
        common = events.surroundings(device.runs)
        nights = script_json(columns([_header(run) for run in device.runs]))
        script = folder / "cells" / f"nights-{number}.js"
        script.write_text(f"const NIGHTS = {nights};\n", encoding="utf-8")
        for row in [*device.rows, *device.retired]:
            page = folder / links.page(device, row.cell.id)
            marks = events.of_cell(row.cell.id, device, common, notes)
            page.write_text(
                template.render(
                    device=device,
                    row=row,
                    events=marks,
                    nights=script.name,
                    listed=_listed(device, row),
                    data=script_json(_cell_data(device, row, marks)),
                    raw=_json(row.cell),
                    root="../",
                ),
                encoding="utf-8",
            )
    front = pages.get_template("front.html").render(
        devices=devices,
        notes=notes,
        aside=aside,
        built=built,
        data=script_json([_front_data(device) for device in devices]),
        root="",
    )
    (folder / "index.html").write_text(front, encoding="utf-8")


def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "figure": text.figure,
        "percent": text.percent,
        "metric": text.metric_name,
        "when": text.when,
        "json": _json,
    }
    pages.globals |= {"counts": text.counts, "page": links.page, "change_link": links.change}
    return pages


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _seconds(time: datetime) -> int:
    return int(time.timestamp())


def _front_data(device: Device) -> dict[str, Any]:
    """What the front page's script draws: ``rows`` in the order of the table's, ``pairs``."""
    return {
        "started": [_seconds(run.started) for run in device.runs[-SPARK_RUNS:]],
        "rows": [
            {
                "values": row.values[-SPARK_RUNS:],
                "cublas": row.cublas[-SPARK_RUNS:],
                "band": row.band and [row.band.low, row.band.high],
            }
            for row in device.rows
        ],
        "problems": _problems(device),
    }


def _problems(device: Device) -> list[dict[str, Any]]:
    """Today's results over the shapes, for each other choice of problem and metric."""
    found: dict[str, dict[str, Any]] = {}
    for cell in device.today.cells.values():
        name = ", ".join((cell.dtype, cell.layout, cell.mode, text.metric_name(cell.metric)))
        problem = found.setdefault(name, {"name": name, "metric": cell.metric, "backends": {}})
        shape = "×".join(map(str, cell.shape))
        bars = [cell.value, cell.low, cell.high]
        problem["backends"].setdefault(cell.backend, {})[shape] = bars
    return list(found.values())


def _header(run: Run) -> dict[str, Any]:
    """What a cell's page tells of a night besides the cell."""
    night = run.nights[0]
    return {
        "file": night.file_name,
        "started": _seconds(run.started),
        "synthetic": run.synthetic,
        "commit": msgspec.to_builtins(night.commit),
        "runner": msgspec.to_builtins(night.runner),
        "gpu": msgspec.to_builtins(night.gpu),
        "versions": msgspec.to_builtins(night.versions),
        "clock": night.conditions and night.conditions.sm_clock_mhz.median,
        "throttled": night.conditions and ", ".join(night.conditions.throttle_reasons),
    }


def _cell_data(device: Device, row: Row, marks: Sequence[events.Event]) -> dict[str, Any]:
    """``night``: for each record, which of NIGHTS it is of."""
    identity = row.cell.id
    known = [index for index, run in enumerate(device.runs) if identity in run.cells]
    records = [
        msgspec.to_builtins(device.runs[index].cells[identity])
        | dict(zip(("word", "why"), device.runs[index].word(identity), strict=True))
        for index in known
    ]
    return {
        "title": text.metric_name(row.cell.metric),
        "ratio": row.cell.metric == "ratio_to_cublas",
        "band": row.band and [row.band.low, row.band.high],
        "night": known,
        "records": columns(records),
        "events": [
            {"time": _seconds(event.time), "kind": event.kind, "label": event.label}
            for event in marks
        ],
    }


def _listed(device: Device, row: Row) -> list[dict[str, Any]]:
    """The last nights of a cell, the latest first."""
    identity = row.cell.id
    return [
        {"run": run, "cell": run.cells.get(identity), "word": run.word(identity)[0]}
        if identity in run.cells
        else {"run": run, "cell": None, "word": "missing"}
        for run in reversed(device.runs[-LISTED_RUNS:])
    ]

"""What a run of the benchmarks found, as it stands in pytest-benchmark's saved JSON.

pytest-benchmark's own entries hold statistics of those that ran. Under the key ``tlx_clc_plugin``
:mod:`.pytest_plugin` adds every cell, also those that failed, and the machine.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from ..nightly.night import Cell, Conditions, Gpu, Night, Record, Versions, unique

KEY = "tlx_clc_plugin"
WINDOW = 14
# Fewer nights have no noise band.
WINDOW_NIGHTS = 3


class Refused(ValueError):
    """Runs that must not be compared, or a file that holds none; says why."""


class Saved(Record):
    """``harness``: as in :class:`~..nightly.night.Runner`."""

    gpu: Gpu | None
    conditions: Conditions | None
    versions: Versions
    seeds: dict[str, int]
    cells: list[Cell]
    harness: str = "embedded"


class _File(msgspec.Struct):
    tlx_clc_plugin: Saved | None = None


def read(path: Path) -> Saved:
    """The run in a JSON file of pytest-benchmark. Raises Refused, naming file and field, if there
    is no such file, or none of our benchmarks in it."""
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: not a saved run: {error}") from None
    run = content.tlx_clc_plugin
    if run is None or not run.cells:
        raise Refused(f"{path}: holds no benchmark of tlx_clc_plugin")
    try:
        unique("cells", (cell.id for cell in run.cells))
        for cell in run.cells:
            cell.check()
    except ValueError as error:
        raise Refused(f"{path}: {error}") from None
    return run


def window(nights: list[Night], head: Saved) -> Saved | None:
    """The last nights that ``head`` may be compared with as one run: medians, and three standard
    deviations of a night as the noise band. None if there are fewer than WINDOW_NIGHTS."""
    like = [night for night in nights if not difference(night, head)][-WINDOW:]
    if len(like) < WINDOW_NIGHTS:
        return None
    series: dict[str, list[Cell]] = {}
    for night in like:
        for cell in night.cells:
            if cell.status == "ok":
                series.setdefault(cell.id, []).append(cell)
    cells = []
    for found in series.values():
        values = [cell.value for cell in found]
        middle = median(values)
        deviation = 1.4826 * float(np.median(np.abs(np.array(values) - middle)))
        low, high = max(0.0, middle - 3 * deviation), middle + 3 * deviation
        if len(values) >= WINDOW_NIGHTS:
            cells.append(msgspec.structs.replace(found[-1], value=middle, low=low, high=high))
    last = like[-1]
    return Saved(last.gpu, None, last.versions, last.seeds, cells, last.runner.harness)


def difference(base: Saved | Night, head: Saved) -> str:
    """In words, why values of the two can't be compared; empty if they can.

    On a GPU: another model, driver major, power limit, torch, fbtriton, CUDA or harness. Without
    one: another fbtriton, since counts are its compiler's.
    """
    if (base.gpu is None) != (head.gpu is None):
        return f"{_words(base.gpu)} in the baseline, {_words(head.gpu)} now"
    pairs = {"fbtriton": (base.versions.fbtriton, head.versions.fbtriton)}
    if base.gpu is not None:
        for name in ("name", "capability", "sms", "power_limit_w"):
            pairs[f"GPU {name}"] = getattr(base.gpu, name), getattr(head.gpu, name)
        pairs["driver major"] = base.gpu.driver.split(".")[0], head.gpu.driver.split(".")[0]
        for name in ("torch", "cuda"):
            pairs[name] = getattr(base.versions, name), getattr(head.versions, name)
        harness = base.runner.harness if isinstance(base, Night) else base.harness
        pairs["harness"] = harness, head.harness
    found = [f"{name} {a} in the baseline, {b} now" for name, (a, b) in pairs.items() if a != b]
    return "; ".join(found)


def _words(gpu: Gpu | None) -> str:
    return "no GPU" if gpu is None else gpu.name

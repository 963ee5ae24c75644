"""What got slower over the nights, since when and at which commit.

A cell's values, as logarithms, are a level and noise, from which comes what is common to all
cells of a night (a warmer GPU). Nights on another GPU, driver or toolchain are another history:
levels are never compared across such a change.

In each history the best *step* (a level, then another) and the best *creep* (a level, then a
straight line) are found by least squares. The better one counts if two gates let it pass: it
explains more than noise can (SIGNIFICANCE), and it is large enough to matter (CHANGE). The parts
before and after a step are searched in turn. Common shifts are searched for steps too, and taken
out of the cells only as far as they are not steps: what slows all cells stays visible in each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np

from ..nightly.night import Cell, Night

# Least change of a level that matters, as a ratio: above what noise of 1.5 % leaves of a mean of
# LEVEL_NIGHTS, below a loss of 6 %. Counts have no noise.
CHANGE = {"ratio_to_cublas": 0.03}
CHANGE_OF_COUNTS = 0.01
# Least gain of a fit, in standard deviations of noise: about one false alarm in 300 histories of 60
# cells and 30 nights, while 1 in 100 losses of 6 % goes unseen (tests/nights.py has the noise).
SIGNIFICANCE = 5.0
# A level takes as many nights: one bad night is the verdict's to tell, two are still chance.
LEVEL_NIGHTS = 3
# A shorter slope is not told from a step.
CREEP_NIGHTS = 14
# Below as many cells the median of a night is no measure of what is common to them.
COMMON_CELLS = 8
# Values deviating by more from the median of five nights are outliers.
_OUTLIER = 3.0
# Noise of a history without any: counts.
_NOISE_FLOOR = 1e-4


@dataclass(frozen=True)
class Regression:
    """A cell that lost speed. ``before`` and ``after``: its levels, in units of the cell's metric;
    ``change`` = after / before - 1. ``kind``: "step", or "creep" for a slow decline, whose first
    night is where it sets in. ``last_good_sha``: commit of the night before. ``recovered``: start
    of the first night when the loss was made up for; None while it stands."""

    cell: str
    first_bad_night: datetime
    first_bad_sha: str
    before: float
    after: float
    change: float
    kind: Literal["step", "creep"]
    last_good_sha: str
    recovered: datetime | None = None


@dataclass(frozen=True)
class _Level:
    """Log level of the nights ``start`` to ``stop``: ``first`` on the first, ``last`` on the last,
    in between a straight line."""

    start: int
    stop: int
    first: float
    last: float


def regressions(nights: Sequence[Night]) -> list[Regression]:
    """Losses in ``nights``, which are sorted by their start; the standing ones first, then the
    latest. Cells that are not ok on a night have no value there. Raises ValueError if the nights
    are not in order."""
    if any(b.started < a.started for a, b in zip(nights, nights[1:], strict=False)):
        raise ValueError("nights must be sorted by their start")
    found = []
    for segment in segments(nights):
        found += _of_segment(segment)
    return sorted(
        found, key=lambda r: (r.recovered is None, r.first_bad_night, r.cell), reverse=True
    )


def segments(nights: Iterable[Night]) -> list[list[Night]]:
    """Nights that may be compared: of one lane and GPU, and between changes of the toolchain."""
    by_lane = defaultdict(list)
    for night in nights:
        gpu = night.gpu
        machine = gpu and (gpu.name, gpu.capability, gpu.sms)
        by_lane[night.runner.lane, machine].append(night)
    found = []
    for lane in by_lane.values():
        for night in lane:
            if night is lane[0] or toolchain(night) != toolchain(found[-1][-1]):
                found.append([])
            found[-1].append(night)
    return found


def toolchain(night: Night) -> tuple[object, ...]:
    """What else than our code makes a value: driver's major version, power limit, versions."""
    v, gpu = night.versions, night.gpu
    settings = gpu and (gpu.driver.split(".")[0], gpu.power_limit_w)
    return settings, v.torch, v.fbtriton, v.cuda, night.runner.harness


def threshold(metric: str) -> float:
    """Least change of a level that matters, as a ratio."""
    return CHANGE.get(metric, CHANGE_OF_COUNTS)


def _of_segment(nights: list[Night]) -> list[Regression]:
    cells: dict[str, list[Cell | None]] = {}
    for index, night in enumerate(nights):
        for cell in night.cells:
            if cell.status == "ok" and cell.value:
                cells.setdefault(cell.id, [None] * len(nights))[index] = cell
    groups = defaultdict(dict)
    for name, series in cells.items():
        last = next(cell for cell in reversed(series) if cell is not None)
        groups[last.metric, last.mode, last.better][name] = np.array(
            [np.log(cell.value) if cell else np.nan for cell in series]
        )
    found = []
    for (metric, _, better), group in groups.items():
        # A loss is a fall from here on.
        sign = 1 if better == "higher" else -1
        names, values = list(group), sign * np.array(list(group.values()))
        for name, series in zip(names, values - _common(values), strict=True):
            present = np.flatnonzero(np.isfinite(series))
            levels = fit(series[present], np.log1p(threshold(metric)))
            found += _losses(name, levels, [nights[i] for i in present], sign, threshold(metric))
    return found


def _common(values: np.ndarray) -> np.ndarray:
    """What moves all rows (cells) of ``values`` together, by night, without its steps."""
    if len(values) < COMMON_CELLS:
        return np.zeros(values.shape[1])
    shift = np.nanmedian(values - np.nanmedian(values, axis=1, keepdims=True), axis=0)
    for level in fit(shift, 0.0):
        shift[level.start : level.stop] -= np.linspace(
            level.first, level.last, level.stop - level.start
        )
    return shift


def fit(series: np.ndarray, change: float) -> list[_Level]:
    """``series`` as levels and slopes; neighbours differ by ``change`` at least, as logarithms."""
    noise = noise_of(series)
    return _fit(_without_outliers(series, noise), 0, noise, change)


def noise_of(series: np.ndarray) -> float:
    """Standard deviation of the noise, by differences of neighbours, which levels hardly touch."""
    differences = np.diff(series)
    if len(differences) == 0:
        return _NOISE_FLOOR
    spread = np.median(np.abs(differences)) * 1.4826 / np.sqrt(2)
    return max(float(spread), _NOISE_FLOOR)


def _without_outliers(series: np.ndarray, noise: float) -> np.ndarray:
    nights = range(len(series))
    medians = np.array([np.median(series[max(0, i - 2) : i + 3]) for i in nights])
    return np.clip(series, medians - _OUTLIER * noise, medians + _OUTLIER * noise)


def _fit(y: np.ndarray, start: int, noise: float, change: float) -> list[_Level]:
    n = len(y)
    step, creep = _best_step(y), _best_creep(y)
    flat = float(np.sum((y - y.mean()) ** 2)) if n else 0.0
    passing = [
        found
        for found in (step, creep)
        if found is not None
        and flat - found[0] > (SIGNIFICANCE * noise) ** 2
        and abs(found[3] - found[2]) > change
    ]
    if not passing:
        return [_Level(start, start + n, float(y.mean()), float(y.mean()))] if n else []
    best = min(passing, key=lambda found: found[0])
    _, at, before, after = best
    if best is step:
        left = _fit(y[:at], start, noise, change)
        return left + _fit(y[at:], start + at, noise, change)
    # A creep may follow earlier levels, and start with the first night.
    left = _fit(y[:at], start, noise, change) if at else []
    return [*left, _Level(start + at, start + n, before, after)]


_Found = tuple[float, int, float, float]  # squared residuals, first night after, levels


def _best_step(y: np.ndarray) -> _Found | None:
    n = len(y)
    if n < 2 * LEVEL_NIGHTS:
        return None
    at = np.arange(LEVEL_NIGHTS, n - LEVEL_NIGHTS + 1)
    sums, squares = np.cumsum(y), float(np.sum(y**2))
    left, right = sums[at - 1] / at, (sums[-1] - sums[at - 1]) / (n - at)
    residuals = squares - at * left**2 - (n - at) * right**2
    i = int(np.argmin(residuals))
    return float(residuals[i]), int(at[i]), float(left[i]), float(right[i])


def _best_creep(y: np.ndarray) -> _Found | None:
    n = len(y)
    if n < CREEP_NIGHTS:
        return None
    # Column k: nights since the slope set in at night k.
    slopes = np.maximum(np.arange(n)[:, None] - np.arange(n - CREEP_NIGHTS + 1)[None, :], 0.0)
    centred = slopes - slopes.mean(axis=0)
    y_centred = y - y.mean()
    variance = np.sum(centred**2, axis=0)
    covariance = y_centred @ centred
    residuals = np.sum(y_centred**2) - covariance**2 / variance
    k = int(np.argmin(residuals))
    slope = covariance[k] / variance[k]
    before = float(y.mean() - slope * slopes[:, k].mean())
    return float(residuals[k]), k, before, float(before + slope * slopes[-1, k])


def _losses(
    name: str, levels: list[_Level], nights: list[Night], sign: int, change: float
) -> list[Regression]:
    found = []
    for index, level in enumerate(levels):
        previous = levels[index - 1].last if index else level.first
        creeps = level.first - level.last > np.log1p(change)
        if creeps:
            before, after, kind = level.first, level.last, "creep"
        elif previous - level.first > np.log1p(change):
            before, after, kind = previous, level.last, "step"
        else:
            continue
        recovered = next(
            (x.start for x in levels[index + 1 :] if before - x.last < np.log1p(change)), None
        )
        before, after = float(np.exp(sign * before)), float(np.exp(sign * after))
        found.append(
            Regression(
                name,
                nights[level.start].started,
                nights[level.start].commit.sha,
                before,
                after,
                after / before - 1,
                kind,
                nights[max(level.start - 1, 0)].commit.sha,
                None if recovered is None else nights[recovered].started,
            )
        )
    return found

"""Made-up nights for tests: a history of cells with given levels and realistic noise."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import numpy as np

from tlx_clc_plugin.nightly.night import (
    Cell,
    Commit,
    Gpu,
    Night,
    Runner,
    Versions,
    cell_id,
)

START = datetime(2026, 9, 1, 2, tzinfo=timezone.utc)
H200 = Gpu("NVIDIA H200", "9.0", 132, "580.82.07", 700.0, 139.8)
VERSIONS = Versions("3.11.9", "2.13.0", "3.7.4", "0.1.0", "13.0")
SHAPES = [(1024 * i, 1024 * j, 1024) for i in range(1, 7) for j in range(1, 6)]
BACKENDS = ("tlx_persistent", "tlx_dynamic")


def cell(shape=(1024, 1024, 1024), backend="tlx_persistent", value: float | None = 0.97, **changes):
    """A good cell, with ``changes`` of its fields."""
    fields = {
        "op": "gemm",
        "shape": list(shape),
        "dtype": "fp16",
        "layout": "tn",
        "backend": backend,
        "mode": "eager",
        "metric": "ratio_to_cublas",
        "better": "higher",
        "status": "ok",
        "reason": "",
        "value": value,
        "low": value and value * 0.995,
        "high": value and value * 1.005,
        "figures": {"tflops": 600.0},
        "config": "128x256x64",
        "repro": "tlx-clc bench --shapes 1024x1024x1024",
    } | changes
    names = (fields[name] for name in ("dtype", "layout", "backend", "mode"))
    return Cell(**{"id": cell_id(fields["op"], fields["shape"], *names)} | fields)


def night(index: int = 0, cells: Iterable[Cell] = (), **changes) -> Night:
    """The night of the commit ``sha(index)``, with ``changes`` of its fields."""
    started = START + timedelta(days=index)
    fields = {
        "kind": "tlx_clc_plugin.night",
        "schema": 1,
        "synthetic": True,
        "started": started,
        "finished": started + timedelta(minutes=20),
        "commit": Commit(sha(index), started - timedelta(hours=9), f"Change {index}"),
        "runner": Runner("runner-1", "gpu", "embedded"),
        "gpu": H200,
        "conditions": None,
        "versions": VERSIONS,
        "seeds": {"inputs": 1},
        "steps": [],
        "cells": list(cells),
        "verdict": None,
    } | changes
    return Night(**fields)


def sha(index: int) -> str:
    return f"{index + 1:08x}".ljust(40, "0")


def noisy(nights: int, seed: int, *, names=None, cells: int = 60) -> np.ndarray:
    """Ratios by cell and night: levels from 0.6 to 1.05, noise of 1 to 1.5 % in each cell, shifts
    of 0.7 % that a night's cells share, and one value in a hundred off by up to 8 %."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(0.6, 1.05, (cells, 1))
    noise = rng.uniform(0.010, 0.015, (cells, 1)) * rng.standard_normal((cells, nights))
    shift = 0.007 * rng.standard_normal(nights)
    outlier = (rng.random((cells, nights)) < 0.01) * rng.uniform(-0.08, 0.08, (cells, nights))
    return level * (1 + noise + shift + outlier)


def history(values: np.ndarray) -> list[Night]:
    """A night for each column of ``values``, a cell for each row."""
    kinds = [(shape, backend) for shape in SHAPES for backend in BACKENDS]
    return [
        night(i, [cell(*kind, value=float(v)) for kind, v in zip(kinds, column, strict=False)])
        for i, column in enumerate(values.T)
    ]

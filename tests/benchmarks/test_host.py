"""What a call costs the host before the GPU has anything to do, as a ratio to torch's own work:
planning, next to a matmul of 16 x 16 matrices on the CPU."""

from __future__ import annotations

import time
from statistics import median, quantiles

import pytest
import torch

from tlx_clc_plugin.gemm import plan
from tlx_clc_plugin.guard.pytest_plugin import Planned, Record

SHAPE = (1024, 1024, 1024)
ROUNDS, CALLS = 25, 40
CELLS = [
    Planned(
        SHAPE,
        "fp16",
        "tn",
        f"tlx_{schedule}",
        "compile",
        "plan_ratio",
        "lower",
        f"pytest --benchmark-only tests/benchmarks/test_host.py -k tlx_{schedule}",
        several=True,
    )
    for schedule in ("persistent", "clc", "dynamic")
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_plan(cell: Planned, record: Record) -> None:
    M, N, K = SHAPE
    a = torch.empty(M, K, dtype=torch.float16)
    b = torch.empty(N, K, dtype=torch.float16).t()
    small = torch.ones(16, 16)
    schedule = cell.backend.removeprefix("tlx_")
    ours, ratios = [], []
    for _ in range(ROUNDS):
        # The order alternates, so that a change of clock hits both alike.
        before = _seconds(lambda: torch.mm(small, small))
        ours.append(_seconds(lambda: plan(a, b, schedule=schedule)))
        after = _seconds(lambda: torch.mm(small, small))
        ratios.append(ours[-1] / ((before + after) / 2))
    low, _, high = quantiles(ratios, n=4)
    record(ours, value=median(ratios), band=(low, high), figures={"plan_us": median(ours) * 1e6})


def _seconds(function) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        function()
    return (time.perf_counter() - start) / CALLS

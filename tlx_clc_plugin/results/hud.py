"""Merged results as PyTorch HUD records and as the result.json that such records are made from.

A record is a row of the ClickHouse table oss_ci_benchmark_v3 (pytorch/test-infra,
clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql). tritonbench's own converter
(.ci/test_infra/oss_ci_benchmark_v3.py) makes the same records from our result.json.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from importlib.metadata import version
from time import strftime
from typing import Any, NamedTuple

from .read import Benchmark, Row, Value
from .table import ACCURACY_METRICS, Table, describes, failure

NAME = "tlx_clc_plugin"
# The names and modes that the converter takes out of a key whole. A backend "x_..." is a shape.
_BACKEND = re.compile("(?!x_)[0-9a-z_]+")
_METRIC = re.compile("[a-z_]+")
_MODES = ("fwd", "bwd")
# GPU memory in GB of tritonbench's runners with one NVIDIA GPU, as its converter states it.
_RUNNER_MEMORY = {"gcp-h100-runner": 80, "linux.dgx.b200": 192}
_REPOSITORIES = {
    "pytorch": "pytorch/pytorch",
    "triton": "triton-lang/triton",
    "tritonbench": "meta-pytorch/tritonbench",
}


class Measurement(NamedTuple):
    """One number: of a backend at a shape, of a backend over all shapes, or of a benchmark."""

    benchmark: Benchmark
    backend: str | None
    shape: tuple[int, int, int] | None
    metric: str
    value: float

    @property
    def key(self) -> str:
        """Its key in result.json."""
        if self.backend is None:
            return f"{self.benchmark.key}-{self.metric}"
        if self.shape is None:
            return f"{self.benchmark.key}[{self.backend}]-{self.metric}"
        return f"{self.benchmark.key}[x_{self.shape}-{self.backend}]_{self.metric}"


def measurements(table: Table) -> list[Measurement]:
    """The numbers of ``table`` that a dashboard may show.

    Of a backend that failed at a shape only accuracies are told there, never a latency. It has no
    averages then, nor if it lacks a shape of the benchmark: averages are over the same shapes for
    all backends (metric ``{metric}-avg``, arithmetic mean). ``pass`` is 1 for a benchmark (dtype
    and mode) without any failure, else 0. What ``left_out`` names is not among them.
    """
    numbers = []
    for benchmark, passed in table.passes().items():
        if benchmark.mode in _MODES:
            rows = [row for row in table.results if row.benchmark == benchmark]
            at_shapes = [number for row in rows for number in _at_shape(row, table.results[row])]
            failed = {backend for row, backend in table.failures() if row in rows}
            good = [number for number in at_shapes if number.backend not in failed]
            numbers += at_shapes + _averages(good, shapes=len(rows))
            numbers.append(Measurement(benchmark, None, None, "pass", float(passed)))
    return numbers


def _at_shape(row: Row, backends: dict[str, dict[str, Value]]) -> Iterator[Measurement]:
    for backend, values in backends.items():
        failed = failure(values) is not None
        for metric, value in values.items():
            a_number = isinstance(value, float) and math.isfinite(value)
            nameable = _BACKEND.fullmatch(backend) and _METRIC.fullmatch(metric)
            wanted = not describes(metric) and (not failed or metric in ACCURACY_METRICS)
            if a_number and nameable and wanted:
                yield Measurement(row.benchmark, backend, row.shape, metric, value)


def _averages(numbers: list[Measurement], shapes: int) -> list[Measurement]:
    columns: dict[Measurement, list[float]] = {}
    for number in numbers:
        average = number._replace(shape=None, metric=f"{number.metric}-avg", value=0.0)
        columns.setdefault(average, []).append(number.value)
    return [
        average._replace(value=math.fsum(values) / shapes)
        for average, values in columns.items()
        if len(values) == shapes
    ]


def left_out(table: Table) -> list[str]:
    """In words, what ``table`` has but records cannot hold."""
    words = {}
    for row, backends in table.results.items():
        mode = row.benchmark.mode
        if mode not in _MODES:
            words[f"mode {mode!r}: a record has fwd or bwd"] = None
        for backend, values in backends.items():
            if not _BACKEND.fullmatch(backend):
                words[f"backend {backend!r}: a record has a-z, 0-9 and _ only"] = None
            for metric in values:
                if not describes(metric) and not _METRIC.fullmatch(metric):
                    words[f"metric {metric!r}: a record has a-z and _ only"] = None
    return list(words)


def environment() -> dict[str, str]:
    """What result.json says of this machine: run it where the results were measured.

    The commit of Triton is that of TRITONBENCH_TRITON_COMMIT_HASH, as for tritonbench itself.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    env = {
        "benchmark_date": strftime("%Y%m%d%H%M%S"),
        "cuda_version": torch.version.cuda or "unknown",
        "device": torch.cuda.get_device_name() if has_gpu else "unknown",
    }
    for name in _REPOSITORIES:
        env |= {f"{name}_{what}": "unknown" for what in ("commit", "branch", "commit_time")}
    env["pytorch_commit"] = torch.version.git_version or "unknown"
    env["triton_commit"] = os.environ.get("TRITONBENCH_TRITON_COMMIT_HASH", "unknown")
    env["triton_branch"] = f"fbtriton {version('fbtriton')}"
    return env


def result_json(numbers: list[Measurement], env: dict[str, str]) -> dict[str, Any]:
    """tritonbench's result.json, with dtype-qualified keys; RUNNER_NAME and RUNNER_TYPE, which a
    CI sets, from the environment."""
    runner = {name: os.environ.get(name, "unknown") for name in ("RUNNER_NAME", "RUNNER_TYPE")}
    metrics = {number.key: number.value for number in numbers}
    return {"name": NAME, "env": env, "github": runner, "metrics": metrics}


def records(numbers: list[Measurement], env: dict[str, str]) -> list[dict[str, Any]]:
    """One HUD v3 record for each number, in the same order."""
    memory = _RUNNER_MEMORY.get(os.environ.get("RUNNER_TYPE", "unknown"))
    runner = {
        "name": os.environ.get("RUNNER_NAME", "unknown"),
        "gpu_info": env["device"],
        "extra_info": {"cuda_version": env["cuda_version"]},
    }
    if memory:
        runner |= {"gpu_count": 1, "avail_gpu_mem_in_gb": memory}
    dependencies = {
        name: {
            "repo": repository,
            "branch": env[f"{name}_branch"],
            "sha": env[f"{name}_commit"],
            "extra_info": {"commit_time": env[f"{name}_commit_time"]},
        }
        for name, repository in _REPOSITORIES.items()
    }
    return [
        {
            "runners": [runner],
            "dependencies": dependencies,
            "benchmark": {
                "name": NAME,
                "mode": number.benchmark.mode,
                "dtype": number.benchmark.dtype,
                "extra_info": {},
            },
            "model": {"name": "gemm", "type": "tritonbench-oss", "backend": number.backend},
            "metric": {
                "name": number.metric,
                "benchmark_values": [number.value],
                "extra_info": _extra_info(number),
            },
        }
        for number in numbers
    ]


def _extra_info(number: Measurement) -> dict[str, str]:
    if number.shape is None:
        return {}
    # Latencies are medians.
    median = {"aggregation": "p50"} if number.metric == "latency" else {}
    return {"input_shape": str(number.shape)} | median

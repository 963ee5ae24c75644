"""The merged results of several files: which of them failed, and how they are shown."""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from tabulate import tabulate

from .read import SHAPE_HEADER, Benchmark, ResultsError, Row, Run, Value

# 1 if the result was right, 0 if not: the harness's own check, and float64's.
ACCURACY_METRICS = ("accuracy", "tlx_accuracy")
# Metrics whose values are texts or have keys (best_config-BLOCK_M).
_DESCRIPTIONS = frozenset(
    "all_configs att_trace best_config compile_time_by_stage compile_trace determinism"
    " kernel_source_hash kineto_trace ncu_rep ncu_rep_ir nsys_rep walltime_kineto_trace".split()
)
NOT_APPLICABLE = "n/a"  # what the emulated device says of times


def describes(metric: str) -> bool:
    """Whether ``metric`` describes a run or its GPU (hw_roofline) instead of measuring it."""
    return not metric or metric.partition("-")[0] in _DESCRIPTIONS


def failure(values: dict[str, Value]) -> str | None:
    """Why one backend's values at one shape are no result, or None if they are one.

    The harness puts a backend's error message into the column of the first metric, whatever that
    is, and leaves the others empty; a wrong result has accuracy 0.
    """
    (first_metric, _), *others = values.items()
    alone = bool(others) and all(value is None for _, value in others)
    for metric, value in values.items():
        may_be_text = describes(metric) and not (alone and metric == first_metric)
        if isinstance(value, str) and value != NOT_APPLICABLE and not may_be_text:
            return value
    if any(values.get(metric) == 0 for metric in ACCURACY_METRICS):
        return "inaccurate"
    if values.get("determinism") == "fail":
        return "outputs of repeated runs differ"
    for metric, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{metric} is {value}"
    if all(value is None for value in values.values()):
        return "no result"
    return None


@dataclass
class Table:
    """Merged results, rows and columns in the order in which the files brought them."""

    results: dict[Row, dict[str, dict[str, Value]]] = field(default_factory=dict)
    not_passed: set[Benchmark] = field(default_factory=set)

    def add(self, run: Run) -> None:
        """Merge a file's results; ResultsError, and nothing merged, if they contradict what is
        here: two runs of the same backend, shape and dtype, or a wrong dtype for one of them."""
        for row, backends in run.results.items():
            for backend, values in backends.items():
                for metric, value in values.items():
                    old = self.results.get(row, {}).get(backend, {}).get(metric, value)
                    if repr(old) != repr(value):  # by repr, for nan
                        raise ResultsError(
                            f"{backend} at {row}: {metric} is {value!r} here and {old!r} in a file "
                            "before; is the dtype right? results of two runs are not merged"
                        )
        for row, backends in run.results.items():
            for backend, values in backends.items():
                self.results.setdefault(row, {}).setdefault(backend, {}).update(values)
        self.not_passed |= run.not_passed

    def failures(self) -> dict[tuple[Row, str], str]:
        """Why, for each row and backend that failed."""
        reasons = {
            (row, backend): failure(values)
            for row, backends in self.results.items()
            for backend, values in backends.items()
        }
        return {where: reason for where, reason in reasons.items() if reason}

    def passes(self) -> dict[Benchmark, bool]:
        """For each benchmark, whether all of its files and results are good."""
        failed = {row.benchmark for row, _ in self.failures()} | self.not_passed
        benchmarks = dict.fromkeys(row.benchmark for row in self.results)
        benchmarks.update(dict.fromkeys(sorted(self.not_passed)))
        return {benchmark: benchmark not in failed for benchmark in benchmarks}

    def to_text(self) -> str:
        """A table for the terminal; failures in words."""
        header, rows = self._cells(lambda value: f"{value:.6g}")
        header = [name.replace("-", "\n", 1) for name in header]
        rows = [[textwrap.shorten(cell, 48, placeholder=" ...") for cell in row] for row in rows]
        return tabulate(rows, header, stralign="right", disable_numparse=True)

    def to_csv(self) -> str:
        """As ``to_text``, at full precision and with ";" between the columns."""
        out = io.StringIO()
        header, rows = self._cells(repr)
        csv.writer(out, delimiter=";", lineterminator="\n").writerows([header, *rows])
        return out.getvalue().rstrip("\n")

    def to_json(self) -> str:
        """The harness's flat format with dtype-qualified keys, which this package reads too."""
        flat: dict[str, Value | int] = {}
        for row, backends in self.results.items():
            for backend, values in backends.items():
                for metric, value in values.items():
                    # JSON has no nan and no infinity.
                    valid = not isinstance(value, float) or math.isfinite(value)
                    key = f"{row.benchmark.key}[x_{row.shape}-{backend}]_{metric}"
                    flat[key] = value if valid else str(value)
        for benchmark, passed in self.passes().items():
            flat[f"{benchmark.key}-pass"] = int(passed)
        return json.dumps(flat, indent=4)

    def _cells(self, number: Callable[[float], str]) -> tuple[list[str], list[list[str]]]:
        columns = list(
            dict.fromkeys(
                (backend, metric)
                for backends in self.results.values()
                for backend, values in backends.items()
                for metric in values
            )
        )
        order = list(dict.fromkeys(backend for backend, _ in columns))
        columns.sort(key=lambda column: order.index(column[0]))
        # A metric with one value per shape has a name, but no backend.
        header = [f"{backend}-{metric}".rstrip("-") for backend, metric in columns]
        rows = [
            [str(row.shape), *row.benchmark]
            + [_word(backends.get(backend, {}), metric, number) for backend, metric in columns]
            for row, backends in self.results.items()
        ]
        return [SHAPE_HEADER, "dtype", "mode", *header], rows


def _word(values: dict[str, Value], metric: str, number: Callable[[float], str]) -> str:
    """A cell; empty where no file has this backend, shape and metric."""
    value = values.get(metric, "")
    if value is None:
        return "no result"
    if value == 0 and metric in ACCURACY_METRICS:
        return "inaccurate"
    return value if isinstance(value, str) else number(value)

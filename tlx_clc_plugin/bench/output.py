"""Results as a table, as CSV and as JSON, in the forms that tritonbench gives them."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass, field
from statistics import mean
from textwrap import wrap
from typing import TextIO

from tabulate import tabulate

from .inputs import Shape
from .metrics import NOT_OF_BASELINE, Measurement

NOT_APPLICABLE = "n/a"
_SHAPES = "(M, N, K)"
_AVERAGE = "average"
_KEY = "tritonbench_gemm_fwd"

Cell = float | int | str | None


@dataclass
class Results:
    """Measurements of the ``backends``, in the order of their columns, by shape.

    An error takes the cell of a backend's first metric and leaves its others empty. So does an
    inaccurate result, unless the metric accuracy is there to tell it. What does not apply is n/a.
    """

    backends: list[str]
    baseline: str
    metrics: list[str]
    rows: list[tuple[Shape, dict[str, Measurement]]] = field(default_factory=list)

    def to_text(self, width: int | None = None) -> str:
        """A table: a row for each shape and columns for each backend and metric, as tritonbench
        has it, or, where that is wider than ``width`` characters, a row for each shape and
        backend."""
        table = _tabulate(self._header(), self._rows())
        if width is None or len(table.partition("\n")[0]) <= width:
            return table
        header = [_SHAPES, "backend"]
        header += ["\n".join(wrap(metric.replace("_", " "), 10)) for metric in self.metrics]
        rows: list[list[Cell]] = []
        for shape, *cells in self._rows():
            by_column = dict(zip(self._columns(), cells, strict=True))
            for backend in self.backends:
                row = [by_column.get((backend, metric)) for metric in self.metrics]
                rows.append([shape, backend, *row])
                shape = ""
        return _tabulate(header, rows)

    def write_csv(self, file: TextIO) -> None:
        """CSV with ";" between the columns; the last row holds the averages."""
        writer = csv.writer(file, delimiter=";")
        writer.writerow(self._header())
        writer.writerows(self._rows())

    def write_json(self, file: TextIO) -> None:
        """One flat JSON object.

        Keys are ``tritonbench_gemm_fwd[x_{(M, N, K)}-{backend}]_{metric}``, with "average" for a
        shape too, and ``tritonbench_gemm_fwd[{backend}]-{metric}-avg``. Latencies are strings.
        """
        flat: dict[str, Cell] = {}
        averages: dict[str, Cell] = {}
        for shape, *cells in self._rows():
            for (backend, metric), cell in zip(self._columns(), cells, strict=True):
                infinite = isinstance(cell, float) and not math.isfinite(cell)
                as_text = cell is not None and (metric == "latency" or infinite)
                flat[f"{_KEY}[x_{shape}-{backend}]_{metric}"] = str(cell) if as_text else cell
                if shape == _AVERAGE and cell is not None:
                    averages[f"{_KEY}[{backend}]-{metric}-avg"] = cell
        json.dump(flat | averages, file, indent=4)

    def _header(self) -> list[str]:
        return [_SHAPES, *(f"{backend}-{metric}" for backend, metric in self._columns())]

    def _columns(self) -> list[tuple[str, str]]:
        return [(backend, metric) for backend in self.backends for metric in self._shown(backend)]

    def _shown(self, backend: str) -> list[str]:
        hidden = NOT_OF_BASELINE if backend == self.baseline else ()
        return [metric for metric in self.metrics if metric not in hidden]

    def _rows(self) -> list[list[Cell]]:
        """For each shape its text and its cells; then the averages, if there is any row."""
        rows: list[list[Cell]] = [
            [str(shape), *(cell for b in self.backends for cell in self._cells(b, measured[b]))]
            for shape, measured in self.rows
        ]
        if rows:
            _, *columns = zip(*rows, strict=True)
            rows.append([_AVERAGE, *map(_average, columns)])
        return rows

    def _cells(self, backend: str, measured: Measurement) -> list[Cell]:
        metrics = self._shown(backend)
        if metrics and (measured.error or (measured.inaccurate and "accuracy" not in metrics)):
            return [measured.failure, *[None] * (len(metrics) - 1)]
        return [measured.values.get(metric, NOT_APPLICABLE) for metric in metrics]


def _average(cells: tuple[Cell, ...]) -> float | None:
    """Mean of the finite numbers, None if there is none."""
    numbers = [cell for cell in cells if isinstance(cell, int | float) and math.isfinite(cell)]
    return mean(numbers) if numbers else None


def _tabulate(header: list[str], rows: list[list[Cell]]) -> str:
    texts = [[_text(cell) for cell in row] for row in rows]
    return tabulate(texts, headers=header, stralign="right")


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)

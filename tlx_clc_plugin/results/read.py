"""One results file of tritonbench: the JSON or the CSV that a run of the operator gemm wrote.

The keys of the JSON are ``tritonbench_gemm_{mode}[x_{(M, N, K)}-{backend}]_{metric}``. They do not
name the dtype, so the files of a bf16 and of an fp16 run have the same keys: here every result
carries its dtype, taken from the key where it is ``tritonbench_{dtype}_gemm_...``, from the caller
or from the file's name. The CSV names neither dtype nor mode.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

DTYPES = ("fp16", "bf16", "fp32")
MODES = ("fwd", "bwd", "fwd_bwd", "fwd_no_grad")

SHAPE_HEADER = "(M, N, K)"
_SHAPE = re.compile(r"\((\d+), (\d+), (\d+)\)")
_KEY = re.compile(
    rf"tritonbench_(?:({'|'.join(DTYPES)})_)?gemm_({'|'.join(MODES)})"
    r"(?:(-pass)|\[x_([^-\]]*)-([^-\]]*)\]_(.*)|\[[^-\]]*\]-.*-avg)"
)
# Rows that are no shape: the harness's own averages (wrong where a result is missing, so never
# used), and the source hashes that its metric kernel_source_hash adds.
_NO_SHAPES = ("average", "hashes")
# The only metric whose column names no backend: here a backend, with the metric "".
_ONE_PER_SHAPE = "hw_roofline"

Value = float | str | None


class ResultsError(ValueError):
    """A file that is no whole results file of gemm, or one that contradicts another."""


class Benchmark(NamedTuple):
    """What the shapes of a run share."""

    dtype: str
    mode: str

    def __str__(self) -> str:
        return f"{self.dtype} {self.mode}"

    @property
    def key(self) -> str:
        """Start of the dtype-qualified keys of this benchmark's results."""
        return f"tritonbench_{self.dtype}_gemm_{self.mode}"


class Row(NamedTuple):
    """One problem: benchmark and shape (M, N, K)."""

    benchmark: Benchmark
    shape: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.shape} {self.benchmark}"


@dataclass
class Run:
    """What one file says: by row, backend and metric; and the benchmarks it says did not pass.

    A value is a number (latency in ms, tflops in 1e12 / s), a text, or None where the file has
    nothing.
    """

    results: dict[Row, dict[str, dict[str, Value]]] = field(default_factory=dict)
    not_passed: set[Benchmark] = field(default_factory=set)


def dtype_of(path: Path, given: str | None, fallback: str | None) -> str | None:
    """Dtype of the results of ``path`` that do not name one: ``given``, else the one dtype in the
    file's name (``bf16_gemm_fwd.json``), else ``fallback``."""
    in_name = set(re.split("[^0-9a-z]+", path.stem.lower())).intersection(DTYPES)
    return given or (in_name.pop() if len(in_name) == 1 else fallback)


def read(
    path: Path, given: str | None = None, fallback: str | None = None, mode: str = "fwd"
) -> Run:
    """Read one file, as JSON if it starts with a brace and else as CSV.

    ``given`` and ``fallback`` are dtypes, see ``dtype_of``; ``mode`` is that of a CSV. Raises
    OSError, and ResultsError for a file that is empty, truncated, of another operator or
    otherwise foreign, that does not tell its dtype, or whose keys contradict ``given``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ResultsError("not a text file") from None
    if not text.strip():
        raise ResultsError("empty file")
    items = _json_items(text) if text.lstrip().startswith("{") else _csv_items(text, mode)
    default = dtype_of(path, given, fallback)
    run = Run()
    for item in items:
        dtype = item.dtype or default
        if dtype is None:
            raise ResultsError("dtype unknown: neither keys nor file name tell it")
        if given not in (None, dtype):
            raise ResultsError(f"its keys say {dtype}, not {given}")
        benchmark = Benchmark(dtype, item.mode)
        if item.shape is None:
            run.not_passed.add(benchmark)
            continue
        backends = run.results.setdefault(Row(benchmark, item.shape), {})
        backends.setdefault(item.backend, {})[item.metric] = _value(item.value)
    if not run.results and not run.not_passed:
        raise ResultsError("no results: the run crashed, or nothing was left to run")
    return run


class _Item(NamedTuple):
    """One value as a file has it; without a shape: the word that the run did not pass."""

    dtype: str | None
    mode: str
    shape: tuple[int, int, int] | None
    backend: str
    metric: str
    value: object


def _json_items(text: str) -> Iterator[_Item]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ResultsError(f"truncated, or not JSON: {error}") from None
    for key, value in content.items():
        match = _KEY.fullmatch(key)
        if not match:
            raise ResultsError(f"{key!r} is not the key of a result of gemm")
        dtype, mode, passed, x_val, backend, metric = match.groups()
        if passed and value != 1:
            yield _Item(dtype, mode, None, "", "", value)
        elif x_val and x_val not in _NO_SHAPES:
            yield _Item(dtype, mode, _shape(x_val), backend, metric, value)


def _csv_items(text: str, mode: str) -> Iterator[_Item]:
    try:
        header, *rows = filter(None, csv.reader(io.StringIO(text), delimiter=";"))
    except csv.Error as error:
        raise ResultsError(f"neither JSON nor CSV: {error}") from None
    if header[0] != SHAPE_HEADER:
        raise ResultsError(f"neither JSON nor a CSV of gemm: it starts with {header[0]!r}")
    columns = [column.partition("-") for column in header[1:]]
    for column, (_, dash, _) in zip(header[1:], columns, strict=True):
        if not dash and column != _ONE_PER_SHAPE:
            raise ResultsError(f"column {column!r} is not named backend-metric")
    # A run without results writes the header only.
    if rows and rows[-1][0] != "average":
        raise ResultsError("truncated: the row 'average' is missing")
    seen = set()
    for row in rows:
        if row[0] in _NO_SHAPES:
            continue
        shape = _shape(row[0])
        if shape in seen:
            raise ResultsError(f"two rows {shape}: they cannot be told apart")
        seen.add(shape)
        if len(row) != len(header):
            raise ResultsError(f"row {shape} has {len(row)} fields, not {len(header)}")
        for (backend, _, metric), value in zip(columns, row[1:], strict=True):
            yield _Item(None, mode, shape, backend, metric, value)


def _shape(x_val: str) -> tuple[int, int, int]:
    match = _SHAPE.fullmatch(x_val)
    if not match:
        raise ResultsError(f"{x_val!r} is not a shape {SHAPE_HEADER}")
    M, N, K = (int(extent) for extent in match.groups())
    return M, N, K


def _value(value: object) -> Value:
    if value is None or value == "":
        return None
    if isinstance(value, str | int | float):
        try:
            return float(value)
        except ValueError:
            return value
    raise ResultsError(f"{value!r} is neither number, text nor null")

"""pytest plugin of tests/benchmarks: every cell, also one that fails, ends up in the saved JSON.

A benchmark is a test with a parameter ``cell`` (:class:`Planned`) that hands what it measured to
the fixture ``record``. Its values go through pytest-benchmark's statistics, so that its tables,
comparisons and ``--benchmark-compare-fail`` work as ever, whatever clock or counter they are from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec
import pytest

from ..nightly.night import Cell, Conditions, cell_id
from .machine import Sampler, find_gpu, find_versions
from .saved import KEY, Saved, difference

Record = Callable[..., None]
# What pytest says for a skip without a reason.
_NO_REASON = ("", "unconditional skip")


class Wrong(AssertionError):
    """A benchmark's result is wrong: it has no speed."""


@dataclass(frozen=True)
class Planned:
    """A benchmark that ought to run; the fields are :class:`Cell`'s. ``several``: whether its id
    names the metric, since the same backend, shape and mode have others."""

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    backend: str
    mode: str
    metric: str
    better: str
    repro: str
    several: bool = False

    def __str__(self) -> str:
        names = (self.dtype, self.layout, self.backend, self.mode)
        return cell_id("gemm", self.shape, *names, *([self.metric] * self.several))

    def cell(self, status: str, **found: Any) -> Cell:
        """The cell that came of it."""
        fields = {"reason": "", "value": None, "low": None, "high": None, "config": ""}
        fields |= {"figures": {}, **found}
        return Cell(
            id=str(self),
            op="gemm",
            shape=list(self.shape),
            dtype=self.dtype,
            layout=self.layout,
            backend=self.backend,
            mode=self.mode,
            metric=self.metric,
            better=self.better,
            status=status,
            repro=self.repro,
            **fields,
        )


class _Tape:
    """A timer that moves by the values played to it, and not otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def play(self, values: Iterator[float]) -> None:
        self.now = next(values)


_TAPE = _Tape()


@dataclass
class _Session:
    cells: dict[str, Cell] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    sampler: Sampler | None = None
    conditions: Conditions | None = None


_SESSION = pytest.StashKey[_Session]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SESSION] = _Session()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if cell := _planned(item):
            item.add_marker(pytest.mark.benchmark(timer=_TAPE, group=cell.metric))
    if any(map(_planned, items)) and find_gpu() is not None:
        config.stash[_SESSION].sampler = Sampler()


@pytest.fixture
def record(benchmark: Any, cell: Planned, request: pytest.FixtureRequest) -> Record:
    """``record(samples, value=None, band=None, config="", figures={}, seed=None)`` reports a cell.

    ``samples``: seconds, or counts, for pytest-benchmark's statistics. ``value``: what the verdict
    compares, by default their median. ``band``: (low, high) of its noise, by default no noise.
    """
    session = request.config.stash[_SESSION]

    def report(
        samples: Sequence[float],
        *,
        value: float | None = None,
        band: tuple[float, float] | None = None,
        config: str = "",
        figures: dict[str, float] | None = None,
        seed: int | None = None,
    ) -> None:
        value = float(median(samples) if value is None else value)
        low, high = (value, value) if band is None else map(float, band)
        found = cell.cell(
            "ok", value=value, low=low, high=high, config=config, figures=figures or {}
        )
        found.check()
        benchmark.extra_info.update(metric=cell.metric, value=value, config=config, **found.figures)
        _TAPE.now = 0.0
        # Each round takes as long as its sample.
        ends, end = [], 0.0
        for sample in samples:
            ends.append(end := end + sample)
        benchmark.pedantic(_TAPE.play, args=(iter(ends),), rounds=len(ends))
        session.cells[found.id] = found
        if seed is not None:
            session.seeds["inputs"] = seed

    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Any:
    report = yield
    if cell := _planned(item):
        if failed := _failure(report, call):
            status, reason = failed
            item.config.stash[_SESSION].cells[str(cell)] = cell.cell(status, reason=reason[:1000])
        elif call.when == "call" and str(cell) not in item.config.stash[_SESSION].cells:
            report.outcome, report.longrepr = "failed", f"{cell}: the benchmark recorded nothing"
    return report


def _failure(report: pytest.TestReport, call: pytest.CallInfo) -> tuple[str, str] | None:
    if report.skipped:
        words = str(call.excinfo.value.msg) if call.excinfo else ""
        if words in _NO_REASON:
            return "error", "skipped without a reason"
        return "skipped", words
    if report.failed:
        error = call.excinfo.value
        first = (str(error).strip().splitlines() or [""])[0]
        if isinstance(error, Wrong):
            return "wrong", first or "wrong result"
        return "error", f"{type(error).__name__}: {first}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run of the benchmarks in which none gave a value has failed, whatever else went well."""
    ours = session.config.stash[_SESSION]
    if ours.sampler is not None:
        ours.conditions, ours.sampler = ours.sampler.stop(), None
    cells = ours.cells.values()
    wanted = any(map(_planned, session.items)) and not session.config.getoption("collectonly")
    if exitstatus == 0 and wanted and not any(cell.status == "ok" for cell in cells):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    run = _run(config)
    output_json[KEY] = msgspec.to_builtins(run)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    machine_info[KEY] = msgspec.to_builtins(Saved(find_gpu(), None, find_versions(), {}, []))


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
) -> None:
    """pytest-benchmark's own --benchmark-compare refuses another GPU or toolchain as well."""
    theirs = compared_benchmark["machine_info"].get(KEY)
    if theirs is None:
        raise pytest.UsageError("the run to compare with is not of these benchmarks")
    base, head = (msgspec.convert(x, Saved) for x in (theirs, machine_info[KEY]))
    if words := difference(base, head):
        raise pytest.UsageError(f"not to be compared: {words}")


def _run(config: pytest.Config) -> Saved:
    session = config.stash[_SESSION]
    cells = [session.cells[name] for name in sorted(session.cells)]
    return Saved(find_gpu(), session.conditions, find_versions(), session.seeds, cells)


def _planned(item: pytest.Item) -> Planned | None:
    callspec = getattr(item, "callspec", None)
    cell = callspec.params.get("cell") if callspec else None
    return cell if isinstance(cell, Planned) else None

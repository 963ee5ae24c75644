"""A night: what one run of the benchmarks found, and where. One JSON file each, schema 1.

    results/20261206T020000Z-0123456789ab-gpu[-SHARD].json

The classes below are the schema; times are ISO 8601 with a zone. Names are safe in file names and
in HTML, texts are not: whoever shows them has to escape them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

KIND = "tlx_clc_plugin.night"
SCHEMA = 1

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.+-]{1,100}$")]
CellId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.+/-]{1,300}$")]
Text = Annotated[str, Meta(max_length=10_000)]
Time = Annotated[datetime, Meta(tz=True)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Figure = Annotated[float, Meta(ge=0, le=1e18)]
Status = Literal["ok", "wrong", "error", "missing", "skipped"]
Word = Literal["ok", "faster", "slower", "noisy", "wrong", "error", "missing", "skipped"]
# How far a clock may be ahead of the reader's.
_SKEW = timedelta(hours=1)


class NightError(ValueError):
    """A file, or a night, that is not one of schema 1; names the field."""


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """Plain data, read strictly: unknown fields, wrong types and missing ones are errors."""


class Commit(Record):
    """``time``: when it was committed. ``url``: where to read it."""

    sha: Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
    time: Time
    subject: Text
    url: Annotated[str, Meta(pattern=r"^https?://[^\s\"'<>]+$", max_length=1000)] | None = None


class Runner(Record):
    """``name``: the machine's. ``harness``: tritonbench and its commit, or "embedded". ``shard``:
    which part of the benchmarks, where a night is divided over several runners."""

    name: Text
    lane: Literal["gpu", "cpu"]
    harness: Text
    shard: Name | None = None


class Gpu(Record):
    """``capability``: "9.0" for sm_90."""

    name: Text
    capability: Annotated[str, Meta(pattern=r"^\d+\.\d+$")]
    sms: Positive
    driver: Annotated[str, Meta(pattern=r"^[\w.+-]+$")]
    power_limit_w: Figure
    memory_gib: Figure


class Range(Record):
    min: Figure
    median: Figure
    max: Figure


class Conditions(Record):
    """The GPU while it was measured, sampled; ``throttle_reasons``: all that occurred."""

    sm_clock_mhz: Range
    power_w: Range
    temperature_c: Range
    throttle_reasons: list[Text]


class Versions(Record):
    python: Text
    torch: Text
    fbtriton: Text
    tlx_clc_plugin: Text
    cuda: Text | None = None


class Step(Record):
    """One step of the night; ``reason`` says why where it is not ok."""

    name: Name
    status: Literal["ok", "failed", "skipped"]
    reason: Text
    seconds: Figure
    command: Text


class Cell(Record):
    """One benchmark. ``id``: op/MxNxK/dtype/layout/backend/mode, and /metric where there are
    several of them. ``value``, in units of ``metric``, with its noise band from ``low`` to
    ``high``, is there if ``status`` is ok; else ``reason`` says why not. ``repro``: a command."""

    id: CellId
    op: Name
    shape: Annotated[list[Positive], Meta(min_length=3, max_length=3)]
    dtype: Name
    layout: Name
    backend: Name
    mode: Literal["eager", "graph", "emulated", "compile"]
    metric: Name
    better: Literal["higher", "lower"]
    status: Status
    reason: Text
    value: Figure | None
    low: Figure | None
    high: Figure | None
    figures: dict[Name, Figure]
    config: Text
    repro: Text

    def check(self) -> None:
        """Raises NightError, naming the cell, for fields that contradict each other."""
        base = cell_id(self.op, self.shape, self.dtype, self.layout, self.backend, self.mode)
        if self.id not in (base, f"{base}/{self.metric}"):
            raise NightError(f"id of a cell must be {base!r}, or that and its metric: {self.id!r}")
        where = f"cell {self.id}:"
        if (self.status == "ok") != (self.value is not None):
            raise NightError(f"{where} value must be there if status is ok, and only then")
        if (self.low is None) != (self.high is None):
            raise NightError(f"{where} low and high belong together")
        if self.low is not None and not self.low <= (self.value or self.low) <= self.high:
            raise NightError(
                f"{where} value must lie from low to high, got {self.value} and "
                f"{self.low} to {self.high}"
            )
        if self.status != "ok" and not self.reason:
            raise NightError(f"{where} reason must say why it is {self.status}")


class CellVerdict(Record):
    word: Word
    why: Text


class Verdict(Record):
    status: Literal["ok", "fail"]
    cells: dict[CellId, CellVerdict]


class Night(Record):
    """All of it. ``synthetic``: made up, for a test or a sample. ``verdict``: of this night's
    cells against the baseline, None where the night broke off before."""

    kind: Literal["tlx_clc_plugin.night"]
    schema: Literal[1]
    synthetic: bool
    started: Time
    finished: Time
    commit: Commit
    runner: Runner
    gpu: Gpu | None
    conditions: Conditions | None
    versions: Versions
    seeds: dict[Name, int]
    steps: list[Step]
    cells: list[Cell]
    verdict: Verdict | None

    @property
    def file_name(self) -> str:
        """Name of its file: by time, commit, lane and shard."""
        started = self.started.astimezone(timezone.utc)
        return f"{started:%Y%m%dT%H%M%SZ}-{self.commit.sha[:12]}-{'-'.join(self.lane)}.json"

    @property
    def lane(self) -> tuple[str, ...]:
        """Lane, and shard if there is one. A commit has one night in each."""
        return (self.runner.lane, *([self.runner.shard] if self.runner.shard else []))


class SetAside(NamedTuple):
    """A file that can't be used, and why, in words."""

    path: Path
    reason: str


def parse(content: bytes) -> Night:
    """The night that the bytes of a file tell. Raises NightError, naming the field, for anything
    else: truncated, of another kind or schema, with a value out of place, NaN or infinity."""
    try:
        header = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NightError(f"truncated, or not JSON: {error}") from None
    kind = header.get("kind") if isinstance(header, dict) else None
    if kind != KIND:
        raise NightError(f"kind must be {KIND!r}, got {str(kind)[:100]!r}")
    if header.get("schema") != SCHEMA:
        raise NightError(f"schema must be {SCHEMA}, got {str(header.get('schema'))[:100]}")
    try:
        night = msgspec.json.decode(content, type=Night)
    except msgspec.ValidationError as error:
        raise NightError(str(error)) from None
    _check(night)
    return night


def load(path: Path) -> Night:
    """The night in a file. Raises OSError and, as :func:`parse`, NightError."""
    return parse(path.read_bytes())


def dump(night: Night, directory: Path) -> Path:
    """Write the night into ``directory``, whole or not at all, in place of earlier files of the
    same commit, lane and shard; returns its path. Raises NightError if it is not valid."""
    content = msgspec.json.format(msgspec.json.encode(night), indent=1) + b"\n"
    # NaN is written as null, which is out of place where a number is due.
    parse(content)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / night.file_name
    write_atomically(path, content)
    _, commit_and_lane = path.name.split("-", 1)
    for earlier in directory.glob(f"*-{commit_and_lane}"):
        if earlier != path and len(earlier.name) == len(path.name):
            earlier.unlink()
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, also if the process or machine dies."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load_all(directory: Path, now: datetime | None = None) -> tuple[list[Night], list[SetAside]]:
    """Nights in the files ``*.json`` of ``directory`` by time, and the files that are none.

    Set aside are also nights from the future (of ``now``, by default the present) and, of several
    nights of one commit, lane and shard, all but the last.
    """
    now = now or datetime.now(timezone.utc)
    found: list[tuple[Night, Path]] = []
    aside = []
    for path in sorted(directory.glob("*.json")):
        try:
            night = load(path)
            if night.finished > now + _SKEW:
                raise NightError(f"finished lies in the future: {night.finished.isoformat()}")
        except (NightError, OSError) as error:
            aside.append(SetAside(path, str(error)))
        else:
            found.append((night, path))
    found.sort(key=lambda pair: pair[0].started)
    last = {(night.commit.sha, night.lane): path for night, path in found}
    for night, path in found:
        if (kept := last[night.commit.sha, night.lane]) != path:
            aside.append(SetAside(path, f"duplicate: {kept.name} is of the same commit and lane"))
    kept_nights = [n for n, path in found if last[n.commit.sha, n.lane] == path]
    return kept_nights, aside


def _check(night: Night) -> None:
    """What types can't say."""
    if night.finished < night.started:
        raise NightError(f"finished must not be before started, got {night.finished.isoformat()}")
    if (night.runner.lane == "gpu") != (night.gpu is not None):
        raise NightError(f"gpu must be there in lane 'gpu' alone, got lane {night.runner.lane!r}")
    unique("cells", (cell.id for cell in night.cells))
    unique("steps", (step.name for step in night.steps))
    for cell in night.cells:
        cell.check()


def cell_id(op: str, shape: Iterable[int], *names: str) -> str:
    """A cell's id: op/MxNxK, then ``names``: dtype/layout/backend/mode[/metric]."""
    return "/".join((op, "x".join(map(str, shape)), *names))


def unique(field: str, names: Iterable[str]) -> None:
    """Raises NightError for names that are there twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise NightError(f"{field}: {name!r} is there {count} times")

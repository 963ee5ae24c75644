"""The fastest config by trial: candidates checked, timed, and the choice remembered on disk.

    ranked configs of the heuristic -> candidates -> right? -> time -> memory and JSON file

A file holds one choice, under a key of all that it may depend on (:class:`Problem`). The folder is
``$TLX_CLC_CACHE/autotune``, by default ``$XDG_CACHE_HOME/tlx_clc_plugin/autotune`` with
``~/.cache`` for ``$XDG_CACHE_HOME``. Deleting files is safe at any time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from .accuracy import check
from .config import GemmConfig, violations
from .heuristics import ranked_configs

AUTOTUNE = "autotune"
# Bounds a tuning run: a candidate takes a second or two to compile, and less to check and time.
MAX_CANDIDATES = 24

_chosen: dict[Problem, GemmConfig] = {}
# One at a time: products running beside would be timed too.
_tuning = threading.Lock()


class WrongResult(RuntimeError):
    """A candidate's product was wrong."""


@dataclass(frozen=True)
class Problem:
    """All that a choice may depend on; the key of memory and files.

    ``a``, ``b``: "row-major" or "column-major", with "copied" where TMA can't address the operand.
    ``kernel``: hash of the kernel's source. ``capability``: "9.0". ``triton``, ``plugin``:
    versions.
    """

    gpu: str
    capability: str
    num_sms: int
    triton: str
    plugin: str
    kernel: str
    arch: str
    schedule: str
    M: int
    N: int
    K: int
    dtype: str
    a: str
    b: str
    bias: bool


def candidates(problem: Problem) -> list[GemmConfig]:
    """At most :data:`MAX_CANDIDATES` valid configs, the likely fastest first.

    The heuristic's, in its order, and each of them with one field changed.
    """
    p = problem
    ranked = ranked_configs(p.M, p.N, p.K, p.num_sms, schedule=p.schedule, bias=p.bias, arch=p.arch)
    # A changed field ranks as far behind as another tile or split.
    queue = sorted(
        (rank + changed, rank, index, config)
        for rank, base in enumerate(ranked)
        for index, (changed, config) in enumerate(
            [(0, base), *((1, c) for c in _variants(base, p))]
        )
        if not violations(config, p.schedule, bias=p.bias, arch=p.arch)
    )
    return [config for *_, config in queue][:MAX_CANDIDATES]


def _variants(base: GemmConfig, problem: Problem) -> Iterable[GemmConfig]:
    tile_rows = -(-problem.M // base.block_size_m)
    for group_size_m in (4, 16):
        # Groups that hold all rows of tiles give one order, whatever their size.
        if min(group_size_m, tile_rows) != min(base.group_size_m, tile_rows):
            yield dataclasses.replace(base, group_size_m=group_size_m)
    yield dataclasses.replace(base, epilogue_subtile=2 * base.epilogue_subtile)
    if base.epilogue_subtile > 1:
        yield dataclasses.replace(base, epilogue_subtile=base.epilogue_subtile // 2)
    if problem.schedule == "clc":
        yield dataclasses.replace(base, num_clc_stages=2)


def choose(problem: Problem, prepare: Callable[[], Callable[[GemmConfig], float]]) -> GemmConfig:
    """The config of ``problem``: remembered, from its file, or tuned.

    ``prepare``: called to tune only; gives the function that multiplies, checks and times with a
    config (:func:`measurer`). It raises :class:`WrongResult`, or whatever the compiler or launch
    does. Such candidates are warned of and never chosen. A file that can't
    be used, or written, is warned of too.

    Raises RuntimeError, naming every candidate, if none is right.
    """
    if (config := _chosen.get(problem)) is None:
        with _tuning:
            config = _chosen.get(problem) or load(problem)
            if config is None:
                config, best = tune(candidates(problem), prepare())
                save(problem, config, best)
            _chosen[problem] = config
    return config


def measurer(
    run: Callable[[GemmConfig, torch.Tensor | None], torch.Tensor],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    time: Callable[[Callable], float],
) -> Callable[[GemmConfig], float]:
    """What :func:`choose` takes, for ``run(config, out)``, the product of these operands.

    ``time``: milliseconds of a call. The result is checked (accuracy.py) before it is called.
    """

    def milliseconds(config: GemmConfig) -> float:
        # What isn't written is wrong.
        out = torch.full((a.shape[0], b.shape[1]), torch.nan, dtype=a.dtype, device=a.device)
        verdict = check(run(config, out), a, b, bias)
        if not verdict.ok:
            raise WrongResult(verdict.reason)
        return time(lambda: run(config, None))

    return milliseconds


def random_like(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Normal numbers with the shape, strides and alignment of ``x``.

    The caller's own may be zeros, on which wrong kernels are right and fast ones faster.
    """
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    # Allocations begin on boundaries wider than any that matters.
    offset = x.data_ptr() % 128 // x.element_size()
    generator = torch.Generator(x.device).manual_seed(seed)
    kind = {"dtype": x.dtype, "device": x.device}
    memory = torch.randn(offset + last + 1, generator=generator, **kind)
    return memory.as_strided(x.shape, x.stride(), offset)


def tune(
    configs: Iterable[GemmConfig], milliseconds: Callable[[GemmConfig], float]
) -> tuple[GemmConfig, float]:
    """The fastest of the configs that give right results, and its milliseconds. See `choose`."""
    times, rejected = {}, []
    for config in configs:
        try:
            times[config] = milliseconds(config)
        except Exception as error:
            lines = str(error).splitlines() or [""]
            rejected.append(f"{config}: {type(error).__name__}: {lines[0]}")
    if not times:
        raise RuntimeError("autotune: no config works: " + "; ".join(rejected))
    for words in rejected:
        warnings.warn(f"autotune: not used: {words}", RuntimeWarning, stacklevel=2)
    best = min(times, key=times.__getitem__)
    return best, times[best]


def folder() -> Path:
    """Where choices are kept."""
    if root := os.environ.get("TLX_CLC_CACHE"):
        return Path(root) / "autotune"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tlx_clc_plugin" / "autotune"


def path_of(problem: Problem) -> Path:
    """The file of ``problem``."""
    key = json.dumps(dataclasses.asdict(problem), sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return folder() / f"{problem.schedule}-{problem.M}x{problem.N}x{problem.K}-{digest}.json"


def load(problem: Problem) -> GemmConfig | None:
    """The choice in the file of ``problem``; None without one, or, with a warning, a bad one."""
    path = path_of(problem)
    try:
        found = json.loads(path.read_text())
        if found["problem"] != dataclasses.asdict(problem):
            raise ValueError("it is of another problem")
        config = GemmConfig(**found["config"])
        if broken := violations(config, problem.schedule, bias=problem.bias, arch=problem.arch):
            raise ValueError("; ".join(broken))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        words = f"autotune: {path} is not used: {type(error).__name__}: {error}; tuning anew"
        warnings.warn(words, RuntimeWarning, stacklevel=2)
        return None
    return config


def save(problem: Problem, config: GemmConfig, milliseconds: float) -> None:
    """Write the choice, at once or not at all; a warning where that can't be done."""
    path = path_of(problem)
    content = {
        "problem": dataclasses.asdict(problem),
        "config": dataclasses.asdict(config),
        "milliseconds": milliseconds,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Each writer has a file of its own; the last to finish is read.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with open(descriptor, "w") as file:
                json.dump(content, file, indent=2)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        words = f"autotune: {path} can't be written, the choice is lost at exit: {error}"
        warnings.warn(words, RuntimeWarning, stacklevel=2)

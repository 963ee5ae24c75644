"""A grid over simulated SMs, and :func:`run_ptx`, which runs PTX without Triton."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

import numpy as np
from threadpoolctl import ThreadpoolController

from .clc import ClusterQueue
from .decode import Program, parameter_address
from .errors import ProtocolError
from .lanes import WARP_LANES
from .memory import GlobalMemory
from .parse import parse
from .report import Ctaid, CtaReport, LaunchReport
from .scheduler import Scheduler, make_policy
from .tensormap import TensorMap
from .warp import Cta, Effect

DEFAULT_MAX_STEPS = 200_000_000
MAX_SHARED_BYTES = 232_448  # per CTA on sm_100, CUDA C++ Programming Guide

Parameter = int | TensorMap


@functools.lru_cache(maxsize=64)
def decoded(ptx: str, entry: str | None = None) -> Program:
    """The program of an entry, decoded once."""
    return Program(parse(ptx, entry))


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def run_ptx(
    ptx: str,
    *,
    grid: Ctaid,
    parameters: Sequence[Parameter],
    memory: GlobalMemory,
    entry: str | None = None,
    shared_bytes: int = 0,
    sms: int = 4,
    policy: str = "eager",
    seed: int = 0,
    max_steps: int | None = None,
) -> LaunchReport:
    """Run a kernel to its end.

    ``parameters``: an integer (the bits of a scalar, or an address) or a tensor map for each
    parameter of the entry. ``memory``: what it may touch. ``shared_bytes``: dynamic shared memory
    of a CTA. ``sms``: simulated SMs, of one CTA each. ``policy``, ``seed``: see
    :func:`~.scheduler.make_policy`. ``max_steps``: warp instructions after which the launch is
    taken for a livelock, by default 200 million.

    Raises ValueError for arguments that don't fit, otherwise an EmulationError.
    """
    if len(grid) != 3 or any(n < 1 for n in grid):
        raise ValueError(f"grid must be three positive extents, got {grid}")
    if sms < 1:
        raise ValueError(f"sms must be at least 1, got {sms}")
    if not 0 <= shared_bytes <= MAX_SHARED_BYTES:
        raise ValueError(f"shared_bytes must be 0 to {MAX_SHARED_BYTES}, got {shared_bytes}")
    limit = DEFAULT_MAX_STEPS if max_steps is None else max_steps
    program = decoded(ptx, entry)
    scheduler = Scheduler(program, make_policy(policy, seed), limit)
    start = time.perf_counter()
    running = Grid(program, scheduler, grid, parameters, memory, shared_bytes)
    # Overflow and NaN are the kernel's business. The products of single mma instructions are too
    # small for BLAS threads, which cost more than they bring (tenfold on a busy machine).
    with np.errstate(all="ignore"), _blas().limit(limits=1):
        ctas = running.run(sms)
    seconds = time.perf_counter() - start
    return LaunchReport(
        program.kernel.name, grid, sms, policy, seed, scheduler.instructions, seconds, ctas
    )


class Grid:
    """A launch in progress: its CTAs go through the SMs in the order of the cluster queue."""

    def __init__(
        self,
        program: Program,
        scheduler: Scheduler,
        grid: Ctaid,
        parameters: Sequence[Parameter],
        memory: GlobalMemory,
        shared_bytes: int,
    ):
        self.program = program
        self.scheduler = scheduler
        self.memory = memory
        self.queue = ClusterQueue(grid)
        self.tensor_maps: dict[int, TensorMap] = {}
        self._grid = grid
        self._shared_bytes = shared_bytes
        self._environment = self._bind(parameters)
        self._launched: list[Cta] = []
        self._live: list[Cta] = []

    def run(self, sms: int) -> list[CtaReport]:
        """Run all CTAs; their reports in launch order."""
        for sm in range(min(sms, len(self.queue))):
            self._vacate(sm)
        self.scheduler.run(self._retire, self._live)
        return [cta.report() for cta in self._launched]

    def cta_environment(self, ctaid: Ctaid, sm: int) -> dict[str, np.ndarray]:
        """Parameters and the special registers that are the same in a whole CTA."""
        values = {"%smid": sm}
        for axis, name in enumerate("xyz"):
            values[f"%ctaid.{name}"] = values[f"%clusterid.{name}"] = ctaid[axis]
        return self._environment | {name: _full(value) for name, value in values.items()}

    def tensor_map(self, address: int) -> TensorMap:
        """The tensor map at a generic address. Raises ProtocolError if there is none."""
        if address not in self.tensor_maps:
            raise ProtocolError(f"no tensor map among the parameters is at address {address:#x}")
        return self.tensor_maps[address]

    def _bind(self, parameters: Sequence[Parameter]) -> dict[str, np.ndarray]:
        kernel = self.program.kernel
        if len(parameters) != len(kernel.parameters):
            raise ValueError(
                f"{kernel.name} takes {len(kernel.parameters)} parameters, got {len(parameters)}"
            )
        environment = {"%tid.y": _full(0), "%tid.z": _full(0)}
        environment["%laneid"] = np.arange(WARP_LANES, dtype=np.uint32)
        for axis, name in enumerate("xyz"):
            environment[f"%ntid.{name}"] = _full(1 if axis else kernel.threads)
            environment[f"%nctaid.{name}"] = _full(self._grid[axis])
            environment[f"%nclusterid.{name}"] = _full(self._grid[axis])
            environment[f"%cluster_ctaid.{name}"] = _full(0)
            environment[f"%cluster_nctaid.{name}"] = _full(1)
        environment["%cluster_ctarank"], environment["%cluster_nctarank"] = _full(0), _full(1)
        for declared, value in zip(kernel.parameters, parameters, strict=True):
            if isinstance(value, TensorMap) != (declared.nbytes == 128):
                raise ValueError(
                    f"parameter {declared.name} of {declared.nbytes} bytes can't be {value!r}"
                )
            if isinstance(value, TensorMap):
                self.tensor_maps[parameter_address(declared)] = value
            else:
                bits = 8 * declared.nbytes
                environment[declared.name] = np.full(
                    WARP_LANES, value & (1 << bits) - 1, f"u{declared.nbytes}"
                )
        return environment

    def _vacate(self, sm: int) -> None:
        """The SM is free: a launch on it is under way, whenever the scheduler lets it happen."""
        if len(self.queue):
            launch = functools.partial(self._launch, sm)
            self.scheduler.issue(Effect(None, None, launch))

    def _launch(self, sm: int) -> None:
        ctaid = self.queue.launch()
        if ctaid is None:
            return  # stolen meanwhile
        warps = self.program.kernel.threads // WARP_LANES
        cta = Cta(self, ctaid, sm, warps, self._shared_bytes)
        self._launched.append(cta)
        self._live.append(cta)
        self.scheduler.start(cta)

    def _retire(self, cta: Cta) -> None:
        if cta.tensor_memory.allocations:
            raise ProtocolError(f"CTA {cta.ctaid} exited without freeing its tensor memory")
        self._live.remove(cta)
        cta.release()
        self._vacate(cta.sm)


def _full(value: int) -> np.ndarray:
    return np.full(WARP_LANES, value, np.uint32)

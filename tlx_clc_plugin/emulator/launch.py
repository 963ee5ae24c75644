"""A grid over simulated SMs, and :func:`run_ptx`, which runs PTX without Triton."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Sequence

import numpy as np
from threadpoolctl import ThreadpoolController

from .clc import ClusterQueue
from .cluster import MAX_CTAS, Cluster
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
    cluster: Ctaid | None = None,
    sms: int = 4,
    policy: str = "eager",
    seed: int = 0,
    max_steps: int | None = None,
) -> LaunchReport:
    """Run a kernel to its end.

    ``parameters``: an integer (the bits of a scalar, or an address) or a tensor map for each
    parameter of the entry. ``memory``: what it may touch. ``shared_bytes``: dynamic shared memory
    of a CTA. ``cluster``: its extents in CTAs, by default as the PTX says. ``sms``: simulated
    SMs, of one CTA each. ``policy``, ``seed``: see
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
    cluster = cluster or program.kernel.cluster
    _check_cluster(cluster, grid, program.kernel.cluster, sms)
    scheduler = Scheduler(program, make_policy(policy, seed), limit)
    start = time.perf_counter()
    running = Grid(program, scheduler, grid, cluster, parameters, memory, shared_bytes)
    # Overflow and NaN are the kernel's business. The products of single mma instructions are too
    # small for BLAS threads, which cost more than they bring (tenfold on a busy machine).
    with np.errstate(all="ignore"), _blas().limit(limits=1):
        ctas = running.run(sms)
    seconds = time.perf_counter() - start
    return LaunchReport(
        program.kernel.name, grid, sms, policy, seed, scheduler.instructions, seconds, ctas
    )


def _check_cluster(cluster: Ctaid, grid: Ctaid, declared: Ctaid, sms: int) -> None:
    size = math.prod(cluster)
    if len(cluster) != 3 or any(n < 1 for n in cluster) or size > MAX_CTAS:
        raise ValueError(f"cluster must be three extents of at most {MAX_CTAS} CTAs, got {cluster}")
    if declared != (1, 1, 1) and cluster != declared:
        raise ValueError(f"cluster must be {declared}, as the kernel says, got {cluster}")
    if any(n % c for n, c in zip(grid, cluster, strict=True)):
        raise ValueError(f"grid {grid} is not a multiple of the cluster {cluster}")
    if sms < size:
        raise ValueError(f"a cluster of {size} CTAs needs as many SMs, got sms={sms}")


class Grid:
    """A launch in progress: its CTAs go through the SMs in the order of the cluster queue."""

    def __init__(
        self,
        program: Program,
        scheduler: Scheduler,
        grid: Ctaid,
        cluster: Ctaid,
        parameters: Sequence[Parameter],
        memory: GlobalMemory,
        shared_bytes: int,
    ):
        self.program = program
        self.scheduler = scheduler
        self.memory = memory
        self.queue = ClusterQueue(grid, cluster)
        self.tensor_maps: dict[int, TensorMap] = {}
        self._grid = grid
        self._cluster = cluster
        self._shared_bytes = shared_bytes
        self._environment = self._bind(parameters)
        self._launched: list[Cta] = []
        self._live: list[Cta] = []

    def run(self, sms: int) -> list[CtaReport]:
        """Run all CTAs; their reports in launch order."""
        size = math.prod(self._cluster)
        for first in range(0, min(sms // size, len(self.queue)) * size, size):
            self._vacate(first)
        self.scheduler.run(self._retire, self._live)
        return [cta.report() for cta in self._launched]

    def cta_environment(self, cta: Cta) -> dict[str, np.ndarray]:
        """Parameters and the special registers that are the same in a whole CTA."""
        values = {"%smid": cta.sm, "%cluster_ctarank": cta.rank}
        for axis, name in enumerate("xyz"):
            at, extent = cta.ctaid[axis], self._cluster[axis]
            values[f"%ctaid.{name}"] = at
            values[f"%clusterid.{name}"], values[f"%cluster_ctaid.{name}"] = divmod(at, extent)
        return self._environment | {name: _full(value) for name, value in values.items()}

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
            environment[f"%nclusterid.{name}"] = _full(self._grid[axis] // self._cluster[axis])
            environment[f"%cluster_nctaid.{name}"] = _full(self._cluster[axis])
        environment["%cluster_nctarank"] = _full(math.prod(self._cluster))
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

    def _vacate(self, first_sm: int) -> None:
        """SMs for a cluster are free: a launch is under way, whenever the scheduler lets it be."""
        if len(self.queue):
            launch = functools.partial(self._launch, first_sm)
            self.scheduler.issue(Effect(None, None, launch))

    def _launch(self, first_sm: int) -> None:
        first = self.queue.launch()
        if first is None:
            return  # stolen meanwhile
        cluster = Cluster()
        warps = self.program.kernel.threads // WARP_LANES
        nx, ny, nz = self._cluster
        for rank, (z, y, x) in enumerate(itertools.product(range(nz), range(ny), range(nx))):
            ctaid = first[0] + x, first[1] + y, first[2] + z
            cta = Cta(self, cluster, ctaid, first_sm + rank, warps, self._shared_bytes)
            self._launched.append(cta)
            self._live.append(cta)
        for cta in cluster.ctas:
            self.scheduler.start(cta)

    def _retire(self, cta: Cta) -> None:
        """A CTA is done; its cluster's SMs become free when all of the cluster is."""
        if cta.tensor_memory.allocations:
            raise ProtocolError(f"CTA {cta.ctaid} exited without freeing its tensor memory")
        cluster = cta.cluster.ctas
        if any(peer.live or peer.effects_in_flight for peer in cluster):
            return
        for peer in cluster:
            self._live.remove(peer)
            peer.release()
        self._vacate(cluster[0].sm)


def _full(value: int) -> np.ndarray:
    return np.full(WARP_LANES, value, np.uint32)

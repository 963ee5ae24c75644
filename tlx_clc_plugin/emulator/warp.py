"""State of a running grid's CTAs and warps."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import ProtocolError
from .lanes import LANE, WARP_LANES
from .mbarrier import MbarrierTable
from .memory import SharedMemory
from .ptx import Instruction
from .report import Ctaid, CtaReport, TmaStore
from .tensor_memory import TensorMemory

if TYPE_CHECKING:
    from .cluster import Cluster
    from .launch import Grid
    from .wgmma import Warpgroup


class Signal(enum.Enum):
    """What a step may tell the scheduler."""

    YIELD = enum.auto()  # something has happened that others may notice
    EXIT = enum.auto()


@dataclass(slots=True, eq=False)
class Wait:
    """Why a warp is blocked: until ``ready()``. ``describe()`` is for the deadlock report."""

    ready: Callable[[], bool]
    describe: Callable[[], str]


@dataclass(slots=True, eq=False)
class Effect:
    """An asynchronous operation in flight: ``apply()`` does at once all that it does.

    ``queue``: operations that complete in order, of which only the first may be applied.
    A launch of a CTA is an effect too, of no CTA and no instruction.
    """

    cta: Cta | None
    instruction: Instruction | None
    apply: Callable[[], None]
    queue: deque[Effect] | None = None


@dataclass(slots=True)
class CopyGroup:
    """Copies committed together: how many have yet to read their source, and to finish."""

    reads: int = 0
    writes: int = 0


class CopyGroups:
    """The groups of asynchronous copies that a warp has committed, and the open one.

    The ISA counts groups by thread; threads of a warp go through the same instructions here.
    """

    def __init__(self) -> None:
        self.open = CopyGroup()
        self.committed: list[CopyGroup] = []

    def commit(self) -> CopyGroup:
        group, self.open = self.open, CopyGroup()
        self.committed.append(group)
        return group

    def unread(self) -> bool:
        """Whether a copy has yet to read its source."""
        return any(group.reads for group in (self.open, *self.committed))

    def all_but(self, newest: int, *, read_only: bool = False) -> Wait | None:
        """Wait until only the ``newest`` groups may be unfinished (or unread); None if so now."""
        # Groups finish in any order; only those before the first unfinished one are history.
        while self.committed and not self.committed[0].writes:
            self.committed.pop(0)
        older = self.committed[: max(0, len(self.committed) - newest)]

        def ready() -> bool:
            return not any(group.reads if read_only else group.writes for group in older)

        what = "to be read" if read_only else "to finish"
        return None if ready() else Wait(ready, lambda: f"groups of copies {what}: {older}")


class NamedBarrier:
    """One of the 16 barriers of a CTA (bar, barrier): counts arriving threads."""

    def __init__(self, number: int):
        self.number = number
        self.expected = self.arrived = self.generation = 0

    def arrive(self, threads: int, expected: int) -> None:
        if self.arrived and expected != self.expected:
            raise ProtocolError(
                f"barrier {self.number} with {expected} threads while {self.arrived} of "
                f"{self.expected} have arrived"
            )
        self.expected = expected
        self.arrived += threads
        if self.arrived > expected:
            raise ProtocolError(f"{self.arrived} threads at barrier {self.number} of {expected}")
        if self.arrived == expected:
            self.arrived = 0
            self.generation += 1

    def wait(self, generation: int) -> Wait | None:
        """Wait for the completion that follows ``generation`` others; None if it is there."""
        if self.generation != generation:
            return None
        return Wait(
            lambda: self.generation != generation,
            lambda: f"barrier {self.number}: {self.arrived} of {self.expected} threads arrived",
        )


class Warp:
    """``registers``: arrays of 32 lanes. ``environment``: special registers and parameters."""

    __slots__ = (
        "bulk_copies",
        "copies",
        "cta",
        "environment",
        "index",
        "instructions",
        "noted_copies",
        "pc",
        "registers",
        "tensor_loads",
        "tensor_queue",
        "tensor_stores",
        "wait",
    )

    def __init__(self, cta: Cta, index: int, registers: list[np.ndarray]):
        self.cta = cta
        self.index = index
        self.registers = registers
        self.environment = {
            **cta.environment,
            "%tid.x": LANE + np.uint32(WARP_LANES * index),
            "%warpid": np.full(WARP_LANES, index, np.uint32),
        }
        self.pc = 0
        self.instructions = 0
        self.wait: Wait | None = None
        self.copies = CopyGroups()  # cp.async
        self.noted_copies: list[tuple] = []  # not committed yet
        self.bulk_copies = CopyGroups()  # cp.async.bulk
        self.tensor_queue: deque[Effect] = deque()  # tcgen05.mma and commit, in order
        self.tensor_loads = self.tensor_stores = 0  # tcgen05.ld and st in flight

    def __str__(self) -> str:
        return f"warp {self.index} of CTA {self.cta.ctaid}"


class Cta:
    """One CTA on an SM."""

    def __init__(
        self,
        grid: Grid,
        cluster: Cluster,
        ctaid: Ctaid,
        sm: int,
        warps: int,
        shared_bytes: int,
    ):
        self.grid = grid
        self.cluster = cluster
        self.rank = len(cluster.ctas)
        self.ctaid = ctaid
        self.sm = sm
        self.shared = SharedMemory(shared_bytes)
        self.tensor_memory = TensorMemory()
        self.mbarriers = MbarrierTable()
        self.named_barriers: dict[int, NamedBarrier] = {}
        self.warpgroups: dict[int, Warpgroup] = {}  # those that have used wgmma
        self.environment = grid.cta_environment(self)
        self.tma_stores: list[TmaStore] = []
        self.cancels_in_flight = 0
        self.effects_in_flight = 0
        self.blocked: list[Warp] = []
        self.warps = [Warp(self, i, grid.program.fresh_registers()) for i in range(warps)]
        self.live = warps
        cluster.ctas.append(self)

    def issue(
        self,
        instruction: Instruction,
        apply: Callable[[], None],
        queue: deque[Effect] | None = None,
    ) -> None:
        """Hand an asynchronous operation to the scheduler."""
        self.grid.scheduler.issue(Effect(self, instruction, apply, queue))

    def exit_warp(self, warp: Warp) -> None:
        """One warp has exited."""
        self.live -= 1
        self.cluster.exit(warp)
        if self.live:
            return
        if self.cancels_in_flight:
            raise ProtocolError(f"CTA {self.ctaid} exited with a try_cancel in flight")
        if any(warp.bulk_copies.unread() for warp in self.warps):
            raise ProtocolError(
                f"CTA {self.ctaid} exited before its bulk copies had read its shared memory"
            )

    def named_barrier(self, number: int) -> NamedBarrier:
        if not 0 <= number < 16:
            raise ProtocolError(f"barrier number must be 0 to 15, got {number}")
        if number not in self.named_barriers:
            self.named_barriers[number] = NamedBarrier(number)
        return self.named_barriers[number]

    def release(self) -> None:
        """Free the memory of a CTA that is done."""
        self.shared = self.tensor_memory = self.environment = None
        for warp in self.warps:
            warp.registers = warp.environment = None

    def report(self) -> CtaReport:
        return CtaReport(
            self.ctaid,
            self.sm,
            tuple(self.grid.queue.stolen.get(self.ctaid, ())),
            tuple(self.tma_stores),
            sum(warp.instructions for warp in self.warps),
        )

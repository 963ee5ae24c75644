"""wgmma.mma_async: D (+)= A @ B of a warpgroup, D in registers, A there too or in shared memory.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". An operation is
one of the whole warpgroup: it begins when all four warps have issued it. Its result reaches the
registers when a warp waits for it and not before, so that an early read sees poison in every
schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .descriptors import WGMMA
from .errors import ProtocolError
from .lanes import WARP_LANES
from .mma import K_BYTES, smem_operand, to_float32
from .ptx import Instruction
from .warp import Cta, Effect, Wait, Warp

WARPS = 4
M = 64
ROWS = M // WARPS  # of a warp
IN_FLIGHT = np.full(WARP_LANES, 0xFFFFFFFF, np.uint32)  # what a register holds meanwhile: NaN


@dataclass(frozen=True)
class Shape:
    """What the opcode and its constants say: N, types of A and B, signs and major modes."""

    n: int
    a_type: str
    b_type: str
    a_sign: int
    b_sign: int
    transpose_a: bool
    transpose_b: bool

    def multiply(self, cta: Cta, a: int | np.ndarray, b: int) -> np.ndarray:
        """A @ B in fp32, (64, N). ``a``: a descriptor, or rows as uint32 of shape (64, 8)."""
        if isinstance(a, int):
            a = smem_operand(cta.shared, a, M, self.transpose_a, self.a_type, WGMMA)
        else:
            a = to_float32(a, self.a_type)
        b = smem_operand(cta.shared, b, self.n, self.transpose_b, self.b_type, WGMMA)
        product = a @ b.T
        return product if self.a_sign == self.b_sign else -product


@dataclass(eq=False)
class Operation:
    """One wgmma.mma_async. ``operands``: what all four warps must agree on.

    ``previous``: the operation in flight that has written D, if there is one; otherwise
    ``accumulators`` has each warp's registers. ``result``: fp32 of shape (64, N) once done.
    """

    instruction: Instruction
    shape: Shape
    operands: tuple
    previous: Operation | None
    accumulators: list[np.ndarray | None] = field(default_factory=lambda: [None] * WARPS)
    a_rows: list[np.ndarray | None] = field(default_factory=lambda: [None] * WARPS)
    result: np.ndarray | None = None


class _Member:
    """What one warp of the group has issued, committed and not yet waited for."""

    def __init__(self) -> None:
        self.fenced: list[np.ndarray] | None = None  # the registers at its last wgmma.fence
        self.issued = 0
        self.open: list[Operation] = []
        self.committed: list[list[Operation]] = []
        self.in_flight: dict[tuple[int, ...], Operation] = {}  # the last one by its D registers


class Warpgroup:
    """Four consecutive warps of a CTA."""

    def __init__(self, cta: Cta):
        self.cta = cta
        self._members = [_Member() for _ in range(WARPS)]
        self._operations: list[Operation] = []
        self._queue: deque[Effect] = deque()

    def fence(self, warp: Warp) -> None:
        """wgmma.fence: what the registers hold now may be operands."""
        self._member(warp).fenced = list(warp.registers)

    def issue(
        self,
        warp: Warp,
        instruction: Instruction,
        shape: Shape,
        d: tuple[int, ...],
        a: int | tuple[int, ...],
        b: int,
        accumulate: bool,
    ) -> None:
        """wgmma.mma_async by one warp. ``d``: register numbers; ``a``: descriptor or registers.

        Raises ProtocolError for registers that no wgmma.fence has made ready, or that belong to
        another operation in flight, and if the four warps issue different operations.
        """
        member = self._member(warp)
        previous = member.in_flight.get(d)
        from_registers = isinstance(a, tuple)
        _check_registers(warp, member, (a if from_registers else ()) + (() if previous else d))
        operands = shape, None if from_registers else a, b, accumulate
        if member.issued == len(self._operations):
            self._operations.append(Operation(instruction, shape, operands, previous))
        operation = self._operations[member.issued]
        if operation.instruction is not instruction or operation.operands != operands:
            raise ProtocolError(
                f"the warps of a warpgroup issue different operations: {operands} here, "
                f"{operation.operands} at {operation.instruction}"
            )
        member.issued += 1
        member.open.append(operation)
        member.in_flight[d] = operation
        rank = warp.index % WARPS
        if accumulate and previous is None:
            operation.accumulators[rank] = _from_fragments([warp.registers[n] for n in d])
        if from_registers:
            operation.a_rows[rank] = _a_rows([warp.registers[n] for n in a])
        for number in d:
            warp.registers[number] = IN_FLIGHT
        if all(other.issued >= member.issued for other in self._members):
            self.cta.issue(instruction, lambda: self._carry_out(operation), self._queue)

    def commit(self, warp: Warp) -> None:
        """wgmma.commit_group."""
        member = self._member(warp)
        member.committed.append(member.open)
        member.open = []

    def wait(self, warp: Warp, newest: int) -> Wait | None:
        """wgmma.wait_group: until only the ``newest`` groups may be in flight."""
        member = self._member(warp)
        count = max(0, len(member.committed) - newest)
        older = [operation for group in member.committed[:count] for operation in group]
        del member.committed[:count]

        def ready() -> bool:
            if any(operation.result is None for operation in older):
                return False
            _deliver(warp, member, older)
            older.clear()
            return True

        return None if ready() else Wait(ready, lambda: f"{len(older)} wgmma.mma_async operations")

    def _member(self, warp: Warp) -> _Member:
        return self._members[warp.index % WARPS]

    def _carry_out(self, operation: Operation) -> None:
        _, a, b, accumulate = operation.operands
        if a is None:
            a = np.concatenate(operation.a_rows)
        result = operation.shape.multiply(self.cta, a, b)
        if accumulate and operation.previous:
            result += operation.previous.result
        elif accumulate:
            result += np.concatenate(operation.accumulators)
        operation.result = result
        operation.previous = None


def _check_registers(warp: Warp, member: _Member, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        value = warp.registers[number]
        if value is IN_FLIGHT:
            raise ProtocolError(
                f"register {_name(warp, number)} belongs to another wgmma.mma_async in flight"
            )
        if member.fenced is None or member.fenced[number] is not value:
            raise ProtocolError(
                f"register {_name(warp, number)} was written after the last wgmma.fence"
            )


def _deliver(warp: Warp, member: _Member, operations: Sequence[Operation]) -> None:
    """Put results into the registers, but for those that a later operation still works on."""
    rank = warp.index % WARPS
    for d, operation in list(member.in_flight.items()):
        if operation not in operations:
            continue
        del member.in_flight[d]
        values = _to_fragments(operation.result[ROWS * rank : ROWS * (rank + 1)])
        for number, value in zip(d, values, strict=True):
            if warp.registers[number] is not IN_FLIGHT:
                raise ProtocolError(
                    f"register {_name(warp, number)} was written while wgmma.mma_async worked on it"
                )
            # The next operation on it needs no fence: no other instruction touches it in between.
            warp.registers[number] = member.fenced[number] = value


def _name(warp: Warp, number: int) -> str:
    return warp.cta.grid.program.register_names[number]


# Fragments (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma). Lane
# 4 q + c holds of D: register 4 g + 2 h + l is row 8 h + q, column 8 g + 2 c + l. Of A, a row of
# which is 8 words of 32 bits for every type: register 2 j + h is row 8 h + q, word 4 j + c.


def _to_fragments(d: np.ndarray) -> np.ndarray:
    """(16, N) fp32 to the registers of a warp, uint32 (N / 2, 32)."""
    return np.ascontiguousarray(
        d.reshape(2, 8, -1, 4, 2).transpose(2, 0, 4, 1, 3)  # h q g c l -> g h l q c
    ).view(np.uint32).reshape(-1, WARP_LANES)  # fmt: skip


def _from_fragments(registers: Sequence[np.ndarray]) -> np.ndarray:
    """The reverse of :func:`_to_fragments`."""
    fragments = np.stack(registers).view(np.float32).reshape(-1, 2, 2, 8, 4)
    return fragments.transpose(1, 3, 0, 4, 2).reshape(ROWS, -1)


def _a_rows(registers: Sequence[np.ndarray]) -> np.ndarray:
    """Four registers to 16 rows of 8 words, uint32."""
    fragments = np.stack(registers).reshape(2, 2, 8, 4)  # j h q c -> h q j c
    return fragments.transpose(1, 2, 0, 3).reshape(ROWS, K_BYTES // 4)

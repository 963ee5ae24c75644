"""Operands of instructions that are not arithmetic, as functions of the warp that executes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .errors import UnsupportedPtx
from .lanes import ALL_LANES, WARP_LANES
from .ptx import Address, Immediate, Instruction, Operand, Register, Sink, Symbol, Vector
from .warp import Signal, Wait, Warp

# What a step gives back: nothing, the step to jump to, a signal or a reason to block.
Outcome = int | Signal | Wait | None
# The second argument: numbers of the lanes whose guard holds, ALL_LANES itself where all do.
Body = Callable[[Warp, np.ndarray], Outcome]
Lanes = Callable[[Warp], np.ndarray]

REGISTER_BYTES = {f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (16, 32, 64)}


class Operands:
    """Decodes the operands of one instruction.

    ``registers``: numbers of the kernel's registers. ``symbols``: addresses by name.
    """

    def __init__(
        self,
        instruction: Instruction,
        registers: Mapping[Register, int],
        symbols: Mapping[str, int],
    ):
        self.instruction = instruction
        self._registers = registers
        self._symbols = symbols

    def __iter__(self):
        return iter(self.instruction.operands)

    def count(self, *allowed: int) -> tuple[Operand, ...]:
        """The operands; UnsupportedPtx unless there are as many as one of ``allowed``."""
        if len(self.instruction.operands) not in allowed:
            raise UnsupportedPtx(f"{len(self.instruction.operands)} operands")
        return self.instruction.operands

    def register(self, operand: Operand, kind: str | None = None) -> int:
        """Number of a register, of declared type ``kind`` if given."""
        if not isinstance(operand, Register) or kind not in (None, operand.type):
            raise UnsupportedPtx(f"operand {operand} is no register" + (kind and f" .{kind}" or ""))
        return self._registers[operand]

    def destination(self, operand: Operand) -> Callable[[Warp, np.ndarray, np.ndarray], None]:
        """Function that writes values (one for each of the given lanes) to a register.

        Values are zero- or sign-extended to the register's width by their own dtype.
        """
        if isinstance(operand, Sink):
            return lambda warp, lanes, values: None
        number = self.register(operand)
        if operand.type == "pred":
            dtype = np.dtype(bool)
        elif operand.type in REGISTER_BYTES:
            dtype = np.dtype(f"u{REGISTER_BYTES[operand.type]}")
        else:
            raise UnsupportedPtx(f"destination {operand}")

        def write(warp: Warp, lanes: np.ndarray, values: np.ndarray) -> None:
            if lanes is ALL_LANES:
                warp.registers[number] = values.astype(dtype)
            else:
                merged = warp.registers[number].copy()
                merged[lanes] = values
                warp.registers[number] = merged

        return write

    def values(self, operand: Operand, nbytes: int = 4) -> Lanes:
        """The lanes of a register, or a constant of ``nbytes`` bytes in all of them."""
        if isinstance(operand, Immediate) and isinstance(operand.value, int):
            constant = np.full(WARP_LANES, operand.value & (1 << 8 * nbytes) - 1, f"u{nbytes}")
            return lambda warp: constant
        if isinstance(operand, Symbol):
            constant = np.full(WARP_LANES, self._symbols[operand.name], f"u{nbytes}")
            return lambda warp: constant
        number = self.register(operand)
        return lambda warp: warp.registers[number]

    def address(self, operand: Operand) -> Lanes:
        """The lanes of an address operand, offset included."""
        if not isinstance(operand, Address) or operand.coordinates is not None:
            raise UnsupportedPtx(f"operand {operand} is no plain address")
        if isinstance(operand.base, Symbol | Immediate):
            base = self.values(operand.base, 8)(None)
            constant = base + np.array(operand.offset).astype(np.uint64)
            return lambda warp: constant
        number = self.register(operand.base)
        if operand.base.type not in ("b32", "u32", "b64", "u64"):
            raise UnsupportedPtx(f"address in a register of .{operand.base.type}")
        if not operand.offset:
            return lambda warp: warp.registers[number]
        offset = np.full(WARP_LANES, operand.offset).astype(f"u{REGISTER_BYTES[operand.base.type]}")
        return lambda warp: warp.registers[number] + offset

    def scalar(self, operand: Operand, nbytes: int = 4) -> Callable[[Warp, np.ndarray], int]:
        """The value of a register or constant, the same in all the given lanes."""
        values = self.values(operand, nbytes)
        if not isinstance(operand, Register):
            constant = int(values(None)[0])
            return lambda warp, lanes: constant
        return lambda warp, lanes: uniform(values(warp), lanes)

    def scalar_address(self, operand: Operand) -> Callable[[Warp, np.ndarray], int]:
        """The value of an address operand, the same in all the given lanes."""
        values = self.address(operand)
        return lambda warp, lanes: uniform(values(warp), lanes)

    def predicate(self, operand: Operand) -> Callable[[Warp, np.ndarray], bool]:
        """The value of a predicate register or 0 or 1, the same in all the given lanes."""
        if isinstance(operand, Immediate):
            constant = bool(operand.value)
            return lambda warp, lanes: constant
        number = self.register(operand, "pred")
        return lambda warp, lanes: bool(uniform(warp.registers[number], lanes))

    def constant(self, operand: Operand) -> int:
        """The value of an integer constant."""
        if not isinstance(operand, Immediate) or not isinstance(operand.value, int):
            raise UnsupportedPtx(f"operand {operand} is no integer constant")
        return operand.value

    def elements(self, operand: Operand) -> tuple[Operand, ...]:
        """Elements of a vector operand, or the operand itself."""
        return operand.elements if isinstance(operand, Vector) else (operand,)


def uniform(values: np.ndarray, lanes: np.ndarray) -> int:
    """The value of all the given lanes; UnsupportedPtx if they differ."""
    first = values[lanes[0]]
    if lanes is ALL_LANES:  # comparing bytes is several times faster than comparing elements
        same = values.tobytes() == first.tobytes() * WARP_LANES
    else:
        same = len(lanes) == 1 or (values[lanes] == first).all()
    if not same:
        raise UnsupportedPtx(f"operand differs between the lanes of a warp: {values[lanes]}")
    return int(first)


def converged(lanes: np.ndarray) -> None:
    """Raise UnsupportedPtx unless all lanes take part."""
    if lanes is not ALL_LANES:
        raise UnsupportedPtx(f"divergence: the guard holds in {len(lanes)} lanes of 32 only")

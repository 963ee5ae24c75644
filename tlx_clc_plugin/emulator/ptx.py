"""A kernel's PTX as objects: instructions with typed operands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Register:
    """``name`` is unique in the kernel; ``type`` as declared, such as "b32" or "pred"."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register, such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    value: int | float


@dataclass(frozen=True, slots=True)
class Symbol:
    """A kernel parameter or a shared variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target or a table of them; ``target`` is an instruction's index once resolved."""

    name: str
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is not wanted."""


@dataclass(frozen=True, slots=True)
class Vector:
    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``first|second``, two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``"""

    register: Register


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``, or ``[base, {coordinates}]`` of a tensor."""

    base: Operand
    offset: int = 0
    coordinates: Vector | None = None


Operand = Register | Special | Immediate | Symbol | Label | Sink | Vector | Pair | Negated | Address


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where an instruction comes from, and through which calls it was inlined there."""

    file: str
    line: int
    inlined_at: SourceLine | None = None

    def __str__(self) -> str:
        here = f"{PurePath(self.file).name}:{self.line}"
        return here if self.inlined_at is None else f"{here} called from {self.inlined_at}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``opcode`` with its modifiers, ``guard`` the predicate or its negation.

    ``line``: number of its first line in the PTX text, from 1. ``source``: None without .loc.
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | Negated | None
    line: int
    text: str
    source: SourceLine | None

    def __str__(self) -> str:
        text = self.text if len(self.text) <= 160 else self.text[:157] + "..."
        return f"PTX line {self.line}: {text} ({self.source or 'no Python source line'})"


@dataclass(frozen=True)
class Parameter:
    """``nbytes``: 128 for a tensor map. ``offset``: in the kernel's parameter space."""

    name: str
    nbytes: int
    offset: int


@dataclass(frozen=True)
class Kernel:
    """A parsed entry.

    ``threads``: CTA size by .reqntid. ``cluster``: by .reqnctapercluster, else one CTA.
    ``shared``: names of the dynamic shared memory.
    """

    name: str
    parameters: tuple[Parameter, ...]
    shared: tuple[str, ...]
    threads: int
    cluster: tuple[int, int, int]
    instructions: tuple[Instruction, ...]


def registers_of(operand: Operand | None) -> tuple[Register, ...]:
    """The registers in an operand or guard."""
    match operand:
        case Register():
            return (operand,)
        case Vector(elements):
            return tuple(register for element in elements for register in registers_of(element))
        case Pair(first, second):
            return registers_of(first) + registers_of(second)
        case Negated(register):
            return (register,)
        case Address(base, _, coordinates):
            return registers_of(base) + registers_of(coordinates)
        case _:
            return ()


SCALAR_BYTES = {
    f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64, 128)
}  # fmt: skip

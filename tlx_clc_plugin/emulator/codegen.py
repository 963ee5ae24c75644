"""Code generation: straight runs of instructions as Python on arrays of 32 lanes.

A register is held as unsigned integers of its width (predicates as bool) and viewed as another
type where an instruction wants so; arrays are never changed in place, so that registers may share
them. What each instruction becomes is said in :mod:`.alu`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from . import lanes
from .errors import UnsupportedPtx
from .ptx import Address, Immediate, Negated, Operand, Register, Sink, Special, Symbol

# PTX types to numpy's. A packed type is viewed as twice as many elements; bf16 has a view of its
# own, see Code.value.
DTYPES = {
    **{f"{kind}{bits}": f"u{bits // 8}" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{"f16": "f2", "f16x2": "f2", "f32": "f4", "f32x2": "f4", "f64": "f8"},
    **{"bf16": "u2", "bf16x2": "u2", "pred": "?"},
}
INTEGERS = tuple(kind for kind in DTYPES if kind[0] in "bus" and not kind.startswith("bf"))
FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64")
SPECIALS = {"%laneid", "%warpid", "%smid", "%cluster_ctarank", "%cluster_nctarank"} | {
    f"%{name}.{axis}"
    for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid")
    + ("cluster_ctaid", "cluster_nctaid")
    for axis in "xyz"
}
BITS = {kind: 8 * np.dtype(dtype).itemsize for kind, dtype in DTYPES.items()} | {
    "f16x2": 32,
    "bf16x2": 32,
    "f32x2": 64,
    "pred": 1,
}


def storage(register: Register) -> str:
    """numpy dtype in which a register is held. Raises UnsupportedPtx for 128-bit ones."""
    if register.type == "pred":
        return "?"
    if register.type not in DTYPES:
        raise UnsupportedPtx(f"register {register.name} of type .{register.type} in arithmetic")
    return f"u{BITS[register.type] // 8}"


@dataclass
class _Packed:
    """A move of ``parts`` into a wider register, at ``line`` of the code."""

    parts: tuple[Register, ...]
    line: int
    uses: int = 0


class Code:
    """Lines of Python for a straight run of instructions, as a function of R and E.

    R: the warp's registers, by the numbers in ``registers``; E: what is fixed for a warp, special
    registers and kernel parameters by name. ``constants``: names and values that the code refers
    to. ``symbols``: addresses of parameters and shared variables. ``parameters``: sizes in bytes.
    ``occurrences``: how often the kernel names a register.

    The compiler moves pairs of registers into a wider one and out of it again, to suit machine
    code; such a round trip is cut short, and the first move left out if it was the only use.
    """

    def __init__(
        self,
        registers: dict[Register, int],
        constants: dict[str, object],
        symbols: dict[str, int],
        parameters: dict[str, int],
        occurrences: Mapping[Register, int],
    ):
        self.registers = registers
        self.constants = constants
        self.symbols = symbols
        self.parameters = parameters
        self.occurrences = occurrences
        self.lines: list[str] = []
        self._packed: dict[Register, _Packed] = {}
        self._loaded: set[Register] = set()
        self._views: dict[tuple[Register, str], str] = {}
        self.guard: str | None = None  # as an expression

    def begin(self, guard: Register | Negated | None) -> None:
        """Start on the next instruction, whose assignments happen where ``guard`` holds."""
        self.guard = guard and self.value(guard, "pred")

    def value(self, operand: Operand, kind: str) -> str:
        """Expression for an operand as an array of PTX type ``kind`` (bf16 as fp32)."""
        if kind in ("bf16", "bf16x2"):
            return f"widen_bf16({self._bits(operand, kind)})"
        return self._bits(operand, kind)

    def assign(self, operand: Operand, kind: str, expression: str) -> None:
        """Append an assignment of an expression of PTX type ``kind`` to a register."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise UnsupportedPtx(f"destination {operand}")
        self._check_width(operand, kind)
        if kind in ("bf16", "bf16x2"):
            expression = f"round_bf16({expression})"
        elif kind == "f16x2" or kind == "f16":
            expression = f"({expression}).astype('f2', copy=False)"
        held = storage(operand)
        if DTYPES[kind] != held:
            expression = f"({expression}).view('{held}')"
        if self.guard is not None:
            expression = f"where({self.guard}, {expression}, {self._load(operand)})"
        number = self.registers[operand]
        self.lines.append(f"R[{number}] = r{number} = {expression}")
        self._loaded.add(operand)
        for key in [key for key, move in self._packed.items() if operand in (key, *move.parts)]:
            del self._packed[key]
        for key in [key for key in self._views if key[0] == operand]:
            del self._views[key]

    def pack(self, register: Register, kind: str, parts: tuple[Operand, ...]) -> None:
        """Append a move of several operands into a wider register, least significant first."""
        part_kind = f"b{BITS[kind] // len(parts)}"
        values = ", ".join(self.value(part, part_kind) for part in parts)
        self.assign(register, kind, f"pack({values})")
        if self.guard is None and all(isinstance(part, Register) for part in parts):
            self._packed[register] = _Packed(parts, len(self.lines) - 1)

    def unpack(self, parts: tuple[Operand, ...], kind: str, source: Operand) -> None:
        """Append a move of a register into several narrower ones."""
        part_kind = f"b{BITS[kind] // len(parts)}"
        move = self._packed.get(source)
        if move and len(move.parts) == len(parts) and not set(move.parts) & set(parts):
            for part, origin in zip(parts, move.parts, strict=True):
                self.assign(part, part_kind, self.value(origin, part_kind))
            move.uses += 1
            if self.occurrences[source] == 1 + move.uses:
                self.lines[move.line] = "pass"
            return
        self.lines.append(f"parts = unpack({self.value(source, kind)}, {len(parts)})")
        for i, part in enumerate(parts):
            self.assign(part, part_kind, f"parts[{i}]")

    def address(self, operand: Operand) -> str:
        """Expression for an address operand, in the width of its register."""
        if not isinstance(operand, Address) or operand.coordinates is not None:
            raise UnsupportedPtx(f"operand {operand} is no plain address")
        if not isinstance(operand.base, Register):
            return self._full(self.symbols[operand.base.name] + operand.offset, "u64")
        kind = f"u{BITS.get(operand.base.type, 0)}"
        base = self.value(operand.base, kind)
        return f"{base} + {self._full(operand.offset, kind)}" if operand.offset else base

    def constant(self, value: object, prefix: str = "k") -> str:
        """A name for a constant of the generated module."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    def _bits(self, operand: Operand, kind: str) -> str:
        if isinstance(operand, Register):
            self._check_width(operand, kind)
            return self._view(operand, DTYPES[kind])
        if isinstance(operand, Negated):
            return f"~{self.value(operand.register, kind)}"
        if isinstance(operand, Special):
            if operand.name not in SPECIALS or kind not in ("b32", "u32"):
                raise UnsupportedPtx(f"special register {operand.name} as .{kind}")
            return f"E[{operand.name!r}]"
        if isinstance(operand, Symbol):
            return self._full(self.symbols[operand.name], kind)
        if isinstance(operand, Immediate):
            return self._full(operand.value, kind)
        raise UnsupportedPtx(f"operand {operand} in arithmetic")

    def _check_width(self, register: Register, kind: str) -> None:
        width = 1 if register.type == "pred" else BITS.get(register.type)
        if width != BITS[kind]:
            raise UnsupportedPtx(f"register {register.name} of .{register.type} used as .{kind}")

    def _load(self, register: Register) -> str:
        number = self.registers[register]
        if register not in self._loaded:
            self.lines.append(f"r{number} = R[{number}]")
            self._loaded.add(register)
        return f"r{number}"

    def _view(self, register: Register, dtype: str) -> str:
        name = self._load(register)
        if dtype == storage(register):
            return name
        if (register, dtype) not in self._views:
            self.lines.append(f"{name}_{dtype} = {name}.view('{dtype}')")
            self._views[register, dtype] = f"{name}_{dtype}"
        return f"{name}_{dtype}"

    def _full(self, value: int | float, kind: str) -> str:
        if kind == "pred":
            return self.constant(np.full(lanes.WARP_LANES, bool(value)))
        width = BITS[kind]
        if isinstance(value, float):
            value = int.from_bytes(struct.pack("<d" if width == 64 else "<f", value), "little")
        value &= (1 << width) - 1
        name = f"k{width}_{value:x}"
        if name not in self.constants:
            self.constants[name] = np.full(lanes.WARP_LANES, value, f"u{width // 8}")
        dtype = DTYPES[kind]
        if self.constants[name].dtype == dtype:
            return name
        typed = f"{name}_{dtype}"
        self.constants[typed] = self.constants[name].view(dtype)
        return typed

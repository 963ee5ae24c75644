"""Descriptors of tensor core instructions: of a matrix in shared memory, and of tcgen05.mma itself.

Layouts: PTX ISA, "Shared memory descriptor" and "Instruction descriptor" of tcgen05, "Matrix
descriptor format" of wgmma; the same in CUTLASS cute/arch/mma_sm100_desc.hpp (SmemDescriptor,
InstrDescriptor) and mma_sm90_desc.hpp (GmmaDescriptor).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .errors import UnsupportedPtx
from .swizzle import Swizzle

TCGEN05, WGMMA = 0b001, 0b000  # versions of the shared memory descriptor
ADDRESS_MASK = 0x3FFF0  # addresses and offsets: 18 bits, in units of 16 bytes

# Operand types by mma kind, and accumulator types, by their code.
INPUT_TYPES = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2"},
}
ACCUMULATOR_TYPES = {0: "f16", 1: "f32"}


@dataclass(frozen=True)
class SmemDescriptor:
    """A matrix in shared memory.

    ``start``: byte offset in the shared window. ``leading_bytes``, ``stride_bytes``: the leading
    and stride dimension byte offsets. All are multiples of 16 below 2^18. ``version``: bits 46-48,
    0b001 for tcgen05; wgmma leaves them zero and has its swizzle mode in bits 62-63 only.
    """

    start: int
    leading_bytes: int
    stride_bytes: int
    swizzle: Swizzle
    version: int = TCGEN05

    @classmethod
    @lru_cache(maxsize=4096)
    def decode(cls, bits: int, version: int = TCGEN05) -> SmemDescriptor:
        """From the 64-bit operand. Raises UnsupportedPtx for fields that are not modelled."""
        _require(_field(bits, 46, 3) == version, bits, f"bits 46-48 must be {version:#05b}")
        _require(_field(bits, 49, 3) == 0, bits, "a base offset is not modelled")
        _require(_field(bits, 52, 1) == 0, bits, "an absolute leading dimension is not modelled")
        for low, width in ((14, 2), (30, 2), (53, 8)):
            _require(_field(bits, low, width) == 0, bits, f"bits from {low} must be zero")
        return cls(
            start=_field(bits, 0, 14) << 4,
            leading_bytes=_field(bits, 16, 14) << 4,
            stride_bytes=_field(bits, 32, 14) << 4,
            swizzle=Swizzle.from_descriptor(_field(bits, 61, 3)),
            version=version,
        )

    def encode(self) -> int:
        """The 64-bit operand. Raises ValueError for an offset that the fields cannot hold."""
        for offset in (self.start, self.leading_bytes, self.stride_bytes):
            if offset & ~ADDRESS_MASK:
                raise ValueError(f"{offset:#x} is not a multiple of 16 below 2^18")
        return (
            self.start >> 4
            | (self.leading_bytes >> 4) << 16
            | (self.stride_bytes >> 4) << 32
            | self.version << 46
            | self.swizzle.descriptor_code << 61
        )


@dataclass(frozen=True)
class InstructionDescriptor:
    """Shape and types of one tcgen05.mma of kind f16, tf32 or f8f6f4.

    ``m``, ``n``: rows and columns of D. ``input_type``: "f16", "bf16", "tf32", "e4m3" or "e5m2",
    of A and B; ``b_type``: of B alone, where it is another one (of eight bits).
    ``accumulator_type``: "f32" or "f16". A transposed operand is MN-major, otherwise K-major.
    """

    m: int
    n: int
    input_type: str
    accumulator_type: str = "f32"
    transpose_a: bool = False
    transpose_b: bool = False
    negate_a: bool = False
    negate_b: bool = False
    b_type: str | None = None

    @classmethod
    @lru_cache(maxsize=256)
    def decode(cls, bits: int, kind: str) -> InstructionDescriptor:
        """From the 32-bit operand of an mma of ``kind`` "f16", "tf32" or "f8f6f4".

        Raises UnsupportedPtx for other kinds and for fields that are not modelled.
        """
        if kind not in INPUT_TYPES:
            raise UnsupportedPtx(f"tcgen05.mma kind {kind} is not one of {sorted(INPUT_TYPES)}")
        _require(_field(bits, 0, 3) == 0, bits, "sparsity is not modelled")
        _require(_field(bits, 3, 1) == 0, bits, "saturation is for integers only")
        _require(_field(bits, 30, 2) == 0, bits, "a maximum shift is not modelled")
        for bit in (6, 23, 29):
            _require(_field(bits, bit, 1) == 0, bits, f"bit {bit} must be zero")
        a_type, b_type, d_type = _field(bits, 7, 3), _field(bits, 10, 3), _field(bits, 4, 2)
        _require(a_type in INPUT_TYPES[kind], bits, f"type {a_type} of A is not one of kind {kind}")
        _require(b_type in INPUT_TYPES[kind], bits, f"type {b_type} of B is not one of kind {kind}")
        if kind != "f8f6f4":
            _require(a_type == b_type, bits, f"types {a_type} of A and {b_type} of B differ")
        _require(d_type in ACCUMULATOR_TYPES, bits, f"type {d_type} of D is no float")
        return cls(
            m=_field(bits, 24, 5) << 4,
            n=_field(bits, 17, 6) << 3,
            input_type=INPUT_TYPES[kind][a_type],
            accumulator_type=ACCUMULATOR_TYPES[d_type],
            transpose_a=bool(_field(bits, 15, 1)),
            transpose_b=bool(_field(bits, 16, 1)),
            negate_a=bool(_field(bits, 13, 1)),
            negate_b=bool(_field(bits, 14, 1)),
            b_type=None if a_type == b_type else INPUT_TYPES[kind][b_type],
        )

    def encode(self) -> int:
        """The 32-bit operand. Raises ValueError for a shape that the fields cannot hold."""
        if self.m % 16 or not 0 <= self.m < 512 or self.n % 8 or not 0 <= self.n < 512:
            raise ValueError(f"shape {self.m}x{self.n} is not in units of 16x8 below 512")
        codes = {name: code for types in INPUT_TYPES.values() for code, name in types.items()}
        input_code = codes[self.input_type]
        accumulator_code = {"f16": 0, "f32": 1}[self.accumulator_type]
        return (
            accumulator_code << 4
            | input_code << 7
            | codes[self.b_type or self.input_type] << 10
            | self.negate_a << 13
            | self.negate_b << 14
            | self.transpose_a << 15
            | self.transpose_b << 16
            | (self.n >> 3) << 17
            | (self.m >> 4) << 24
        )


def _field(bits: int, low: int, width: int) -> int:
    return bits >> low & (1 << width) - 1


def _require(holds: bool, bits: int, rule: str) -> None:
    if not holds:
        raise UnsupportedPtx(f"descriptor {bits:#x}: {rule}")

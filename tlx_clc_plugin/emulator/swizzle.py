"""How TMA and tensor cores permute 16-byte granules of shared memory to avoid bank conflicts."""

from __future__ import annotations

import enum
from typing import TypeVar

import numpy as np

from .errors import UnsupportedPtx

Address = TypeVar("Address", int, np.ndarray)


class Swizzle(enum.IntEnum):
    """A swizzle mode; the value is its width in bytes, the span within which granules move.

    No swizzle has the width of a granule: nothing can move.
    """

    NONE = 16
    B32 = 32
    B64 = 64
    B128 = 128

    @classmethod
    def from_tensor_map(cls, code: int) -> Swizzle:
        """From a CUtensorMapSwizzle (cuda.h). Raises UnsupportedPtx for other atoms."""
        return _named(code, _TENSOR_MAP_CODES, "CUtensorMapSwizzle")

    @classmethod
    def from_descriptor(cls, code: int) -> Swizzle:
        """From bits 61-63 of a tcgen05 shared memory descriptor (PTX ISA, "Shared memory
        descriptor"). Raises UnsupportedPtx for 128-byte swizzling of 32-byte atoms."""
        return _named(code, _DESCRIPTOR_CODES, "swizzle field of a shared memory descriptor")

    @property
    def descriptor_code(self) -> int:
        """Bits 61-63 of a tcgen05 shared memory descriptor."""
        return next(code for code, mode in _DESCRIPTOR_CODES.items() if mode is self)


_TENSOR_MAP_CODES = {0: Swizzle.NONE, 1: Swizzle.B32, 2: Swizzle.B64, 3: Swizzle.B128}
_DESCRIPTOR_CODES = {0: Swizzle.NONE, 6: Swizzle.B32, 4: Swizzle.B64, 2: Swizzle.B128}


def _named(code: int, codes: dict[int, Swizzle], field: str) -> Swizzle:
    if code not in codes:
        raise UnsupportedPtx(f"{field} {code} is not one of {sorted(codes)}")
    return codes[code]


def swizzle(address: Address, mode: Swizzle) -> Address:
    """The byte address where the byte at linear ``address`` (shared window, int or array) lives.

    Address bits 4-6 are xored with bits 7-9, as far as the width reaches: CuTe's
    Swizzle<B, 4, 3> with B = 0, 1, 2, 3 (CUTLASS cute/arch/mma_sm100_desc.hpp).
    """
    return address ^ ((address >> 3) & (mode - 16))

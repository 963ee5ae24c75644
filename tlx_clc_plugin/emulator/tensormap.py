"""The tensor map that TMA instructions name: a tiled view of a tensor in global memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .swizzle import Swizzle


@dataclass(frozen=True)
class TensorMap:
    """A CUtensorMap without interleaving and with element strides of one.

    Dimension 0 is the innermost, whose elements are contiguous.

    ``base``: global byte address of element 0. ``element_bytes``: size of an element.
    ``dims``: extents in elements. ``strides``: byte strides of dimensions 1 and up.
    ``box``: extents in elements of what one instruction moves. ``oob_fill``: what a load puts
    where the box reaches outside the tensor, "zero" or "nan" (floating-point elements only).

    Raises ValueError for what cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object
    Management") refuses.
    """

    base: int
    element_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle = Swizzle.NONE
    oob_fill: str = "zero"

    def __post_init__(self) -> None:
        rank = len(self.dims)
        _require(1 <= rank <= 5, "rank must be 1 to 5", rank)
        _require(len(self.strides) == rank - 1, f"rank {rank} has {rank - 1} strides", self.strides)
        _require(len(self.box) == rank, f"rank {rank} has {rank} box extents", self.box)
        _require(self.element_bytes in (1, 2, 4, 8), "element size in bytes", self.element_bytes)
        _require(self.base % 16 == 0, "base address must be a multiple of 16", hex(self.base))
        for d in self.dims:
            _require(1 <= d <= 2**32, "dims must be in [1, 2^32]", self.dims)
        for s in self.strides:
            _require(s % 16 == 0, "strides must be multiples of 16 bytes", self.strides)
            _require(0 <= s < 2**40, "strides must be in [0, 2^40) bytes", self.strides)
        for b in self.box:
            _require(1 <= b <= 256, "box extents must be in [1, 256]", self.box)
        _require(self.row_bytes % 16 == 0, "box rows must be multiples of 16 bytes", self.row_bytes)
        _require(
            self.swizzle is Swizzle.NONE or self.row_bytes <= self.swizzle,
            f"box rows must fit the swizzle width of {self.swizzle} bytes",
            self.row_bytes,
        )
        _require(self.oob_fill in ("zero", "nan"), "out-of-bounds fill", self.oob_fill)
        _require(
            self.oob_fill == "zero" or self.element_bytes >= 2,
            "a fill with NaN needs floating-point elements, got elements of bytes",
            self.element_bytes,
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of a box along the innermost dimension."""
        return self.box[0] * self.element_bytes

    @property
    def box_bytes(self) -> int:
        """Bytes of a whole box: what one load completes on its mbarrier, in bounds or not."""
        return math.prod(self.box) * self.element_bytes


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise ValueError(f"tensor map: {rule}, got {value}")

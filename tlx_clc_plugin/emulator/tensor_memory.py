"""Tensor memory: 128 lanes x 512 columns of 32 bits a CTA, addressed lane << 16 | column.

PTX ISA, "Tensor Memory" and "tcgen05.ld": a warp may touch the 32 lanes of its own quarter only.
"""

from __future__ import annotations

import numpy as np

from .errors import MemoryFault, ProtocolError

LANES = 128
COLUMNS = 512
MIN_ALLOC_COLUMNS = 32
WARP_LANES = 32
POISON = 0xFFFFFFFF  # a NaN, as fp32 and as packed 16-bit types


class TensorMemory:
    """The tensor memory of one CTA.

    ``cells``: uint32 of shape (512 columns, 128 lanes); columns first, so that one register of
    a tcgen05.ld is contiguous over a warp's lanes. ``allocations``: columns held, by first
    column; what is left in it at the CTA's exit has leaked. Unwritten cells are NaN.
    """

    def __init__(self) -> None:
        self.cells = np.full((COLUMNS, LANES), POISON, np.uint32)
        self.allocations: dict[int, int] = {}
        self._permit = True

    def alloc(self, columns: int) -> int | None:
        """tcgen05.alloc: address of the allocation, or None while too few columns are free.

        Raises ProtocolError unless ``columns`` is a power of two from 32 to 512, and after
        :meth:`relinquish_alloc_permit`.
        """
        if not MIN_ALLOC_COLUMNS <= columns <= COLUMNS or columns & (columns - 1):
            raise ProtocolError(
                f"tcgen05.alloc: columns must be a power of two from {MIN_ALLOC_COLUMNS} to "
                f"{COLUMNS}, got {columns}"
            )
        if not self._permit:
            raise ProtocolError("tcgen05.alloc after relinquish_alloc_permit")
        first = 0
        for start in sorted(self.allocations):
            if start - first >= columns:
                break
            first = start + self.allocations[start]
        if first + columns > COLUMNS:
            return None
        self.allocations[first] = columns
        return first

    def dealloc(self, address: int, columns: int) -> None:
        """tcgen05.dealloc. Raises ProtocolError unless this is exactly a live allocation."""
        if self.allocations.get(address) != columns:
            raise ProtocolError(
                f"tcgen05.dealloc of {columns} columns at {address:#x}: live allocations are "
                f"{_listing(self.allocations)}"
            )
        del self.allocations[address]
        self.cells[address : address + columns] = POISON

    def relinquish_alloc_permit(self) -> None:
        """tcgen05.relinquish_alloc_permit: no more allocations by this CTA."""
        self._permit = False

    def columns(self, address: int, count: int) -> slice:
        """The ``count`` columns from ``address`` on; MemoryFault unless all are allocated."""
        first = address & 0xFFFF
        for start, size in self.allocations.items():
            if start <= first and first + count <= start + size:
                return slice(first, first + count)
        raise MemoryFault(
            f"tensor memory columns [{first}, {first + count}) are not all allocated: "
            f"live allocations are {_listing(self.allocations)}"
        )

    def ld(self, address: int, count: int, warp: int) -> np.ndarray:
        """tcgen05.ld.32x32b.x``count``: uint32 of shape (count registers, 32 threads).

        ``warp``: the warp's number in its CTA. Raises MemoryFault for lanes that are not the
        warp's, or for columns not allocated.
        """
        return self._quarter(address, count, warp).copy()

    def st(self, address: int, values: np.ndarray, warp: int) -> None:
        """tcgen05.st.32x32b: store ``values``, uint32 of shape (count registers, 32 threads)."""
        self._quarter(address, len(values), warp)[...] = values

    def _quarter(self, address: int, count: int, warp: int) -> np.ndarray:
        lane = WARP_LANES * (warp % 4)
        if address >> 16 != lane:
            raise MemoryFault(
                f"warp {warp} may touch tensor memory lanes {lane} to {lane + WARP_LANES - 1}, "
                f"got lane {address >> 16}"
            )
        return self.cells[self.columns(address, count), lane : lane + WARP_LANES]


def _listing(allocations: dict[int, int]) -> str:
    ranges = [f"[{start}, {start + size})" for start, size in sorted(allocations.items())]
    return ", ".join(ranges) or "none"

"""Global and shared memory as bytes, accessed by one instruction for many lanes at a time.

The bytes of a window live in one numpy array. A window is also seen as an array of 2, 4, 8, 16
or 32-byte words, which turns an access of all lanes into a single gather or scatter: the ISA
demands that an address be a multiple of the access size (PTX ISA, "Addresses as operands").
"""

from __future__ import annotations

import bisect
import ctypes

import numpy as np

from .errors import MemoryFault

# The first KiB of shared memory is reserved for system use (CUDA C++ Programming Guide, compute
# capability 9.0 and later); a kernel's dynamic shared memory begins behind it.
DYNAMIC_SMEM_OFFSET = 1024
# Convention of this emulator: CTA rank r of a cluster owns shared window addresses from r << 24.
CTA_WINDOW_SHIFT = 24

ACCESS_SIZES = (1, 2, 4, 8, 16, 32)
GRANULE = np.dtype("V16")


class Window:
    """A contiguous range of addresses backed by bytes.

    ``base``: first address. ``data``: uint8 array, shared with the owner. ``label``: the name
    used in error messages.
    """

    def __init__(self, base: int, data: np.ndarray, label: str):
        self.base = base
        self.data = data
        self.label = label
        self.end = base + data.size
        self._words: dict[int, tuple[int, np.ndarray]] = {}

    def __str__(self) -> str:
        return f"{self.label} [{self.base:#x}, {self.end:#x})"

    def load(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """The ``nbytes`` bytes at each address: uint8 of shape (len(addresses), nbytes)."""
        words, index = self._locate(addresses, nbytes)
        return words.take(index).view(np.uint8).reshape(-1, nbytes)

    def store(self, addresses: np.ndarray, data: np.ndarray) -> None:
        """Write row i of ``data``, uint8 of shape (len(addresses), nbytes), to address i."""
        words, index = self._locate(addresses, data.shape[1])
        words[index] = np.ascontiguousarray(data).view(words.dtype)[:, 0]

    def span(self, address: int, nbytes: int) -> int:
        """Offset into ``data`` of ``nbytes`` bytes at ``address``; MemoryFault if outside."""
        if address < self.base or address + nbytes > self.end:
            raise MemoryFault(f"{nbytes} bytes at {address:#x} are not all inside {self}")
        return address - self.base

    def words(self, nbytes: int) -> tuple[int, np.ndarray]:
        """Address of the first aligned word of ``nbytes`` bytes, and all aligned words."""
        if nbytes not in self._words:
            if nbytes not in ACCESS_SIZES:
                raise ValueError(f"access size must be one of {ACCESS_SIZES} bytes, got {nbytes}")
            first = -(-self.base // nbytes) * nbytes
            count = max(0, (self.end - first) // nbytes)
            dtype = np.dtype(f"u{nbytes}" if nbytes <= 8 else f"V{nbytes}")
            view = np.ndarray(count, dtype, self.data, first - self.base if count else 0)
            self._words[nbytes] = first, view
        return self._words[nbytes]

    def _locate(self, addresses: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        first, words = self.words(nbytes)
        if np.bitwise_or.reduce(addresses) & (nbytes - 1):
            bad = int(addresses[addresses % nbytes != 0][0])
            raise MemoryFault(f"address {bad:#x} of a {nbytes}-byte access is misaligned in {self}")
        # Addresses below the window wrap to huge unsigned offsets, so one comparison is enough.
        index = (addresses.astype(np.uint64) - np.uint64(first)) >> np.uint64(
            nbytes.bit_length() - 1
        )
        if index.size and index.max() >= words.size:
            bad = int(addresses[index >= words.size][0])
            raise MemoryFault(f"{nbytes} bytes at {bad:#x} are not all inside {self}")
        return words, index.astype(np.intp)


class GlobalMemory:
    """The allocations that a launch may touch, at their real host addresses."""

    def __init__(self) -> None:
        self._windows: list[Window] = []
        self._bases: list[int] = []
        self._last: Window | None = None

    def add(self, base: int, nbytes: int, label: str) -> None:
        """Make ``nbytes`` bytes of host memory at ``base`` accessible under the name ``label``.

        The caller keeps the memory alive. Ranges that overlap become one.
        """
        if nbytes <= 0:
            return
        end = base + nbytes
        kept = []
        for window in self._windows:
            if window.end <= base or end <= window.base:
                kept.append(window)
            else:
                base, end = min(base, window.base), max(end, window.end)
                label = window.label if label == window.label else f"{window.label}, {label}"
        data = np.frombuffer((ctypes.c_uint8 * (end - base)).from_address(base), np.uint8)
        self._windows = sorted([*kept, Window(base, data, label)], key=lambda w: w.base)
        self._bases = [w.base for w in self._windows]
        self._last = None

    def window(self, address: int) -> Window:
        """The allocation that contains ``address``; MemoryFault naming the nearest if none does."""
        last = self._last
        if last is None or not last.base <= address < last.end:
            last = self._find(address)
            if last is None:
                near = self._near(address)
                raise MemoryFault(f"global address {address:#x} is in no allocation{near}")
            self._last = last
        return last

    def load(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """Load for every lane: uint8 of shape (len(addresses), nbytes).

        ``addresses``: uint64, of active lanes only. Raises MemoryFault for an address outside
        every allocation or not a multiple of ``nbytes``.
        """
        if (window := self._common(addresses)) is not None:
            return window.load(addresses, nbytes)
        data = np.empty((len(addresses), nbytes), np.uint8)
        for window, lanes in self._by_window(addresses):
            data[lanes] = window.load(addresses[lanes], nbytes)
        return data

    def store(self, addresses: np.ndarray, data: np.ndarray) -> None:
        """Store row i of ``data``, uint8 of shape (len(addresses), nbytes), to address i.

        ``addresses``: uint64, of active lanes only. Raises MemoryFault as :meth:`load` does.
        """
        if (window := self._common(addresses)) is not None:
            window.store(addresses, data)
            return
        for window, lanes in self._by_window(addresses):
            window.store(addresses[lanes], data[lanes])

    def _find(self, address: int) -> Window | None:
        i = bisect.bisect_right(self._bases, address) - 1
        return self._windows[i] if i >= 0 and address < self._windows[i].end else None

    def _common(self, addresses: np.ndarray) -> Window | None:
        """The allocation of all addresses, or None if they lie in several (or there are none)."""
        if not len(addresses):
            return None
        window = self.window(int(addresses.min()))
        return window if int(addresses.max()) < window.end else None

    def _by_window(self, addresses: np.ndarray) -> list[tuple[Window, np.ndarray]]:
        groups = []
        left = np.ones(len(addresses), bool)
        while left.any():
            window = self.window(int(addresses[left][0]))
            lanes = left & (addresses >= window.base) & (addresses < window.end)
            groups.append((window, lanes))
            left &= ~lanes
        return groups

    def _near(self, address: int) -> str:
        if not self._windows:
            return " (there are none)"
        nearest = min(self._windows, key=lambda w: max(w.base - address, address - w.end + 1))
        if address < nearest.base:
            return f": {nearest.base - address} bytes before {nearest}"
        return f": {address - nearest.end + 1} bytes past the last byte of {nearest}"


class SharedMemory(Window):
    """A CTA's shared memory; addresses are those of the shared window.

    ``nbytes``: dynamic shared memory. ``rank``: the CTA's rank in its cluster. ``base`` is the
    address of the first dynamic byte, a multiple of 1024. Starts as 0xFF bytes, a NaN in every
    floating-point type, so that a read of what was never written shows.
    """

    def __init__(self, nbytes: int, rank: int = 0):
        origin = rank << CTA_WINDOW_SHIFT
        # The array begins at the window's origin, not at the first dynamic byte, so that
        # offsets of matrix descriptors, which count from the origin, index it directly.
        size = -(-(DYNAMIC_SMEM_OFFSET + nbytes) // 32) * 32
        self.storage = np.full(size, 0xFF, np.uint8)
        #: All of shared memory as 16-byte granules, indexed by window offset / 16.
        self.granules = self.storage.view(GRANULE)
        #: Window offset at which dynamic shared memory ends.
        self.window_end = DYNAMIC_SMEM_OFFSET + nbytes
        self.rank = rank
        super().__init__(
            origin + DYNAMIC_SMEM_OFFSET,
            self.storage[DYNAMIC_SMEM_OFFSET : DYNAMIC_SMEM_OFFSET + nbytes],
            f"shared memory of CTA rank {rank}",
        )

    def window_offset(self, address: int, nbytes: int) -> int:
        """Offset in the shared window of ``nbytes`` bytes at ``address``, for ``granules``.

        Raises MemoryFault if they are not all dynamic shared memory of this CTA.
        """
        return self.span(address, nbytes) + DYNAMIC_SMEM_OFFSET

"""Global and shared memory as bytes, accessed by one instruction for many lanes at a time.

The bytes of a window live in one numpy array. A window is also seen as an array of 2, 4, 8, 16
or 32-byte words, which turns an access of all lanes into a single gather or scatter: the ISA
demands that an address be a multiple of the access size (PTX ISA, "Addresses as operands").
"""

from __future__ import annotations

import bisect
import ctypes
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from .errors import MemoryFault

# The first KiB of shared memory is reserved for system use (CUDA C++ Programming Guide, compute
# capability 9.0 and later); a kernel's dynamic shared memory begins behind it.
DYNAMIC_SMEM_OFFSET = 1024

ACCESS_SIZES = (1, 2, 4, 8, 16, 32)
GRANULE = np.dtype("V16")


class _Words(NamedTuple):
    """A window as aligned words; scalars in the type that numpy's arithmetic takes fastest."""

    array: np.ndarray
    first: np.uint64  # address of word 0
    shift: np.uint64  # log2 of the size of a word


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
        self._words: dict[int, _Words] = {}

    def __str__(self) -> str:
        return f"{self.label} [{self.base:#x}, {self.end:#x})"

    def load(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """The ``nbytes`` bytes at each address: uint8 of shape (len(addresses), nbytes).

        ``addresses``: unsigned, of active lanes only. Raises MemoryFault for one that is outside
        the window or not a multiple of ``nbytes``.
        """
        words, index = self._locate(addresses, nbytes)
        try:
            return words.take(index).view(np.uint8).reshape(-1, nbytes)
        except IndexError:
            raise self._out_of_bounds(addresses, nbytes) from None

    def store(self, addresses: np.ndarray, data: np.ndarray) -> None:
        """Store row i of ``data``, uint8 of shape (len(addresses), nbytes), to address i.

        Addresses and errors as for :meth:`load`.
        """
        words, index = self._locate(addresses, data.shape[1])
        try:
            words[index] = np.ascontiguousarray(data).view(words.dtype)[:, 0]
        except IndexError:
            raise self._out_of_bounds(addresses, data.shape[1]) from None

    def span(self, address: int, nbytes: int) -> int:
        """Offset into ``data`` of ``nbytes`` bytes at ``address``; MemoryFault if outside."""
        if address < self.base or address + nbytes > self.end:
            raise MemoryFault(f"{nbytes} bytes at {address:#x} are not all inside {self}")
        return address - self.base

    def _locate(self, addresses: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        """The window as words, and the index of each address in it, checked by its user."""
        words = self._words.get(nbytes) or self._make_words(nbytes)
        if np.bitwise_or.reduce(addresses) & (nbytes - 1):
            bad = int(addresses[addresses % nbytes != 0][0])
            raise MemoryFault(f"address {bad:#x} of a {nbytes}-byte access is misaligned in {self}")
        # Addresses below the window wrap to huge offsets, which numpy refuses like those above:
        # no second check costs time. A shift of one bit at least keeps them positive as intp.
        offset = addresses.astype(np.uint64) - words.first
        index = offset >> words.shift if nbytes > 1 else np.minimum(offset, words.array.size)
        return words.array, index.view(np.int64)

    def _make_words(self, nbytes: int) -> _Words:
        if nbytes not in ACCESS_SIZES:
            raise ValueError(f"access size must be one of {ACCESS_SIZES} bytes, got {nbytes}")
        first = -(-self.base // nbytes) * nbytes
        count = max(0, (self.end - first) // nbytes)
        dtype = np.dtype(f"u{nbytes}" if nbytes <= 8 else f"V{nbytes}")
        array = np.ndarray(count, dtype, self.data, first - self.base if count else 0)
        words = _Words(array, np.uint64(first), np.uint64(nbytes.bit_length() - 1))
        self._words[nbytes] = words
        return words

    def _out_of_bounds(self, addresses: np.ndarray, nbytes: int) -> MemoryFault:
        outside = (addresses < self.base) | (addresses > self.end - nbytes)
        bad = int(addresses[outside][0])
        return MemoryFault(f"{nbytes} bytes at {bad:#x} are not all inside {self}")


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
        """As :meth:`Window.load`; the addresses may be in several allocations."""
        if not len(addresses):
            return np.empty((0, nbytes), np.uint8)
        window = self.window(int(addresses[0]))
        with suppress(MemoryFault):  # of lanes that are in another allocation
            return window.load(addresses, nbytes)
        data = np.empty((len(addresses), nbytes), np.uint8)
        for window, lanes in self._by_window(addresses):
            data[lanes] = window.load(addresses[lanes], nbytes)
        return data

    def store(self, addresses: np.ndarray, data: np.ndarray) -> None:
        """As :meth:`Window.store`; the addresses may be in several allocations."""
        if not len(addresses):
            return
        window = self.window(int(addresses[0]))
        with suppress(MemoryFault):  # of lanes that are in another allocation
            return window.store(addresses, data)
        for window, lanes in self._by_window(addresses):
            window.store(addresses[lanes], data[lanes])

    def _find(self, address: int) -> Window | None:
        i = bisect.bisect_right(self._bases, address) - 1
        return self._windows[i] if i >= 0 and address < self._windows[i].end else None

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

    ``nbytes``: dynamic shared memory. ``base`` is the address of the first dynamic byte, a
    multiple of 1024. Peers in a cluster: see cluster.py. Starts as 0xFF bytes, a NaN in every
    floating-point type, so that a read of what was never written shows.
    """

    def __init__(self, nbytes: int):
        # The array begins at the window's origin, not at the first dynamic byte, so that
        # offsets of matrix descriptors, which count from the origin, index it directly.
        size = -(-(DYNAMIC_SMEM_OFFSET + nbytes) // 32) * 32
        self.storage = np.full(size, 0xFF, np.uint8)
        #: All of shared memory as 16-byte granules, indexed by window offset / 16.
        self.granules = self.storage.view(GRANULE)
        #: Window offset at which dynamic shared memory ends.
        self.window_end = DYNAMIC_SMEM_OFFSET + nbytes
        super().__init__(
            DYNAMIC_SMEM_OFFSET,
            self.storage[DYNAMIC_SMEM_OFFSET : DYNAMIC_SMEM_OFFSET + nbytes],
            "shared memory",
        )

    def window_offset(self, address: int, nbytes: int) -> int:
        """Offset in the shared window of ``nbytes`` bytes at ``address``, for ``granules``.

        Raises MemoryFault if they are not all dynamic shared memory of this CTA.
        """
        return self.span(address, nbytes) + DYNAMIC_SMEM_OFFSET

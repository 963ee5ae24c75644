"""Tiled bulk tensor copies (cp.async.bulk.tensor): boxes between global and shared memory.

A load is :func:`read_global_box` then :func:`write_shared_box`, a store :func:`read_shared_box`
then :func:`write_global_box`: the two halves of a store become visible to the kernel at
different times (wait_group.read and wait_group).

A box travels as uint8 of shape (box[rank-1], ..., box[1], row_bytes): outermost first, as in
memory. Coordinates are in elements, innermost first, as in the instruction.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .errors import MemoryFault, ProtocolError, UnsupportedPtx
from .memory import GRANULE, GlobalMemory, SharedMemory
from .swizzle import Swizzle, swizzle
from .tensormap import TensorMap

SMEM_ALIGNMENT = 128  # of a box in shared memory (PTX ISA, cp.async.bulk.tensor)
# The longest period of a swizzle in the address: bits 7-9 steer it.
SWIZZLE_PERIOD = 1024


def read_global_box(gmem: GlobalMemory, tensor: TensorMap, coords: tuple[int, ...]) -> np.ndarray:
    """The box at ``coords`` (signed), filled as the tensor map says where outside the tensor.

    Raises MemoryFault if the tensor map points outside the launch's allocations.
    """
    inside, extents, start = _clip(tensor, coords)
    shape = _box_shape(tensor)
    if extents is None:
        return _filled(tensor, shape)
    part = _global_view(gmem, tensor, extents, start)
    if part.shape == shape:
        return np.ascontiguousarray(part)
    box = _filled(tensor, shape)
    box[inside] = part
    return box


def write_shared_box(smem: SharedMemory, tensor: TensorMap, address: int, box: np.ndarray) -> None:
    """Place ``box`` at the shared window ``address``, through the tensor map's swizzle."""
    first, index = _granules(smem, tensor, address)
    smem.granules[first:][index] = box.reshape(-1).view(GRANULE)


def read_shared_box(smem: SharedMemory, tensor: TensorMap, address: int) -> np.ndarray:
    """The box that lies at the shared window ``address``, through the tensor map's swizzle."""
    first, index = _granules(smem, tensor, address)
    return smem.granules[first:].take(index).view(np.uint8).reshape(_box_shape(tensor))


def write_global_box(
    gmem: GlobalMemory, tensor: TensorMap, coords: tuple[int, ...], box: np.ndarray
) -> None:
    """Write the part of ``box`` that is inside the tensor to ``coords`` (signed).

    Raises MemoryFault if the tensor map points outside the launch's allocations.
    """
    inside, extents, start = _clip(tensor, coords)
    if extents is not None:
        _global_view(gmem, tensor, extents, start)[...] = box[inside]


def _clip(
    tensor: TensorMap, coords: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[int, ...] | None, int]:
    """The in-bounds part of a box: its slices of the box array, its extents (innermost in
    bytes, outermost first; None if empty) and the byte offset of its start in the tensor."""
    if len(coords) != len(tensor.dims):
        raise ProtocolError(f"coordinates {coords} for a tensor map of rank {len(tensor.dims)}")
    unit, start, slices, extents = tensor.element_bytes, 0, [], []
    for coord, dim, box, stride in zip(
        coords, tensor.dims, tensor.box, (unit, *tensor.strides), strict=True
    ):
        lo, hi = max(0, -coord), min(box, dim - coord)
        if lo >= hi:
            return (), None, 0
        start += (coord + lo) * stride
        slices.append(slice(lo * unit, hi * unit))
        extents.append((hi - lo) * unit)
        unit = 1  # only the innermost dimension counts in bytes
    return tuple(slices[::-1]), tuple(extents[::-1]), start


def _global_view(
    gmem: GlobalMemory, tensor: TensorMap, extents: tuple[int, ...], start: int
) -> np.ndarray:
    """A view of that part of global memory, with the tensor's strides."""
    strides = (*tensor.strides[::-1], 1)
    nbytes = 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
    window = gmem.window(tensor.base + start)
    offset = window.span(tensor.base + start, nbytes)
    return np.ndarray(extents, np.uint8, window.data, offset, strides)


def _box_shape(tensor: TensorMap) -> tuple[int, ...]:
    return (*tensor.box[:0:-1], tensor.row_bytes)


def _filled(tensor: TensorMap, shape: tuple[int, ...]) -> np.ndarray:
    box = np.zeros(shape, np.uint8)
    if tensor.oob_fill == "nan":
        # All ones is a NaN in every floating-point type; the hardware's pattern is not stated.
        box[...] = 0xFF
    return box


def _granules(smem: SharedMemory, tensor: TensorMap, address: int) -> tuple[int, np.ndarray]:
    """Where the box's 16-byte granules are: ``first + index`` into ``smem.granules``."""
    if address % SMEM_ALIGNMENT:
        raise MemoryFault(
            f"a box in shared memory must be {SMEM_ALIGNMENT}-byte aligned, got {address:#x}"
        )
    # A swizzle stays within 128 aligned bytes, so the linear range is the range touched.
    offset = smem.window_offset(address, tensor.box_bytes)
    phase = offset % SWIZZLE_PERIOD
    index = _granule_index(tensor.row_bytes, tensor.box_bytes, tensor.swizzle, phase)
    return (offset - phase) // 16, index


@lru_cache(maxsize=512)
def _granule_index(row_bytes: int, box_bytes: int, mode: Swizzle, phase: int) -> np.ndarray:
    if mode is not Swizzle.NONE and row_bytes != mode:
        raise UnsupportedPtx(f"box rows of {row_bytes} bytes under a swizzle of {mode} bytes")
    linear = phase + np.arange(0, box_bytes, 16, dtype=np.intp)
    return swizzle(linear, mode) // 16

"""Tensor maps made on the device: tensormap.replace, and their way into global memory.

A tensor map is 128 opaque bytes, so the layout is the emulator's own, ``_RECORD``. A kernel zeroes
the bytes before it fills in the fields.
"""

from __future__ import annotations

import numpy as np

from .errors import ProtocolError, UnsupportedPtx
from .memory import GlobalMemory
from .memory_ops import space
from .modifiers import Modifiers
from .operands import Body, Operands, converged
from .swizzle import Swizzle
from .tensormap import TensorMap
from .warp import Signal

MAP_BYTES = 128
_RECORD = np.dtype(
    {
        "names": ["global_address", "rank", "elemtype", "interleave_layout", "swizzle_mode"]
        + ["fill_mode", "box_dim", "global_dim", "global_stride", "element_stride"],
        "formats": ["u8", "u1", "u1", "u1", "u1", "u1", "5u4", "5u4", "4u8", "5u1"],
        "offsets": [0, 8, 9, 10, 11, 12, 16, 36, 56, 88],
        "itemsize": MAP_BYTES,
    }
)
_STEPS = np.arange(0, MAP_BYTES, 32, dtype=np.uint64)
# Bytes of an element by its code (PTX ISA, "tensormap.replace", .elemtype).
_ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)


def read_tensor_map(memory: GlobalMemory, address: int) -> TensorMap:
    """The tensor map that a kernel has put at a global address.

    Raises ProtocolError if its fields make no tensor map.
    """
    data = memory.load(np.array([address], np.uint64) + _STEPS, 32)
    record = data.reshape(-1).view(_RECORD)[0]
    rank, elemtype = int(record["rank"]) + 1, int(record["elemtype"])
    if rank > 5 or elemtype >= len(_ELEMENT_BYTES):
        raise ProtocolError(f"no tensor map at address {address:#x}")
    if record["interleave_layout"] or (record["element_stride"][:rank] != 1).any():
        raise UnsupportedPtx("a tensor map with interleaving or element strides")
    try:
        return TensorMap(
            base=int(record["global_address"]),
            element_bytes=_ELEMENT_BYTES[elemtype],
            dims=tuple(record["global_dim"][:rank].tolist()),
            strides=tuple(record["global_stride"][: rank - 1].tolist()),
            box=tuple(record["box_dim"][:rank].tolist()),
            swizzle=Swizzle.from_tensor_map(int(record["swizzle_mode"])),
            oob_fill="nan" if record["fill_mode"] else "zero",
        )
    except ValueError as e:
        raise ProtocolError(f"at address {address:#x}: {e}") from None


def _replace(m: Modifiers, ops: Operands) -> Body:
    m.take(("tile",))
    field = m.take(_RECORD.names)
    memory = space(m)
    m.take(("b1024",))
    m.take(("b32", "b64"))
    dtype, at = _RECORD.fields[field]
    indexed = dtype.shape != ()
    operands = ops.count(3 if indexed else 2)
    address, value = ops.scalar_address(operands[0]), ops.scalar(operands[-1], 8)
    index = ops.constant(operands[1]) if indexed else 0
    if indexed and not 0 <= index < dtype.shape[0]:
        raise UnsupportedPtx(f"dimension {index} of .{field}")
    at += index * dtype.base.itemsize

    def body(warp, lanes):
        data = np.array([value(warp, lanes)], np.uint64).astype(dtype.base).view(np.uint8)
        where = np.array([address(warp, lanes) + at], np.uint64)
        memory(warp.cta).store(where, data[None, :])

    return body


def _copy_and_fence(m: Modifiers, ops: Operands) -> Body:
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory."""
    for part in ("global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"):
        m.take((part,))
    m.take(("cta", "cluster", "gpu", "sys"))
    target, source, size = ops.count(3)
    target, source = ops.scalar_address(target), ops.scalar_address(source)
    if ops.constant(size) != MAP_BYTES:
        raise UnsupportedPtx(f"tensormap.cp_fenceproxy of {ops.constant(size)} bytes")

    def body(warp, lanes):
        converged(lanes)
        data = warp.cta.shared.load(np.uint64(source(warp, lanes)) + _STEPS, 32)
        warp.cta.grid.memory.store(np.uint64(target(warp, lanes)) + _STEPS, data)
        return Signal.YIELD

    return body


DECODERS = {
    "tensormap.replace": _replace,
    "tensormap.cp_fenceproxy": _copy_and_fence,
}

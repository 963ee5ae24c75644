"""Swizzles against the tables of the CUDA programming guide, TMA against torch slicing."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tlx_clc_plugin.emulator import tma
from tlx_clc_plugin.emulator.errors import MemoryFault, ProtocolError, UnsupportedPtx
from tlx_clc_plugin.emulator.memory import GlobalMemory, SharedMemory
from tlx_clc_plugin.emulator.swizzle import Swizzle, swizzle
from tlx_clc_plugin.emulator.tensormap import TensorMap

# Which 16-byte chunk of 128 aligned bytes holds which (CUDA C++ Programming Guide, "The swizzle
# modes"), for successive 128-byte lines; the pattern repeats.
LINES = {
    Swizzle.NONE: ["01234567"],
    Swizzle.B32: ["01234567", "10325476"],
    Swizzle.B64: ["01234567", "10325476", "23016745", "32107654"],
    Swizzle.B128: [
        "01234567",
        "10325476",
        "23016745",
        "32107654",
        "45670123",
        "54761032",
        "67452301",
        "76543210",
    ],
}


def table_address(address, mode):
    line, chunk, byte = address // 128, address // 16 % 8, address % 16
    lines = LINES[mode]
    return line * 128 + int(lines[line % len(lines)][chunk]) * 16 + byte


@pytest.mark.parametrize("mode", list(Swizzle))
def test_swizzle_tables(mode):
    addresses = np.arange(1024, 1024 + 3 * 1024)
    expected = np.array([table_address(a, mode) for a in addresses.tolist()])
    assert (swizzle(addresses, mode) == expected).all()
    assert (swizzle(addresses.astype(np.uint32), mode) == expected).all()
    assert swizzle(1024 + 7 * 128 + 19, mode) == table_address(1024 + 7 * 128 + 19, mode)


def test_swizzle_codes():
    order = [Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128]
    # cuda.h: CU_TENSOR_MAP_SWIZZLE_NONE, _32B, _64B, _128B = 0, 1, 2, 3.
    assert [Swizzle.from_tensor_map(code) for code in range(4)] == order
    # PTX ISA: 0 none, 6 32-byte, 4 64-byte, 2 128-byte, 1 128-byte with 32-byte atoms.
    assert [Swizzle.from_descriptor(code) for code in (0, 6, 4, 2)] == order
    for code in (1, 3, 5, 7):
        with pytest.raises(UnsupportedPtx, match=f"descriptor {code}"):
            Swizzle.from_descriptor(code)
    for code in (-1, 4):
        with pytest.raises(UnsupportedPtx, match=f"CUtensorMapSwizzle {code}"):
            Swizzle.from_tensor_map(code)


def tensor_map(t, box, **options):
    """The map of a torch tensor whose last dimension is contiguous; ``box`` as torch orders it."""
    return TensorMap(
        base=t.data_ptr(),
        element_bytes=t.element_size(),
        dims=tuple(t.shape[::-1]),
        strides=tuple(s * t.element_size() for s in t.stride()[-2::-1]),
        box=tuple(box[::-1]),
        **options,
    )


def memory_of(t):
    memory = GlobalMemory()
    memory.add(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes(), "t")
    return memory


def padded_view(rng, shape, dtype):
    """A tensor with gaps after its rows and before its first element."""
    gap = 16 // dtype.itemsize
    row = -(-shape[-1] // gap) * gap + 2 * gap
    base = torch.from_numpy(rng.standard_normal((*shape[:-1], row))).to(dtype)
    return base, base[..., gap : gap + shape[-1]]


def box_at(t, coords, box, fill):
    """The box of ``t`` at signed coordinates, by padding the tensor all around."""
    pads = []
    for extent in reversed(box):
        pads += [extent, extent]
    padded = F.pad(t, pads, value=fill)
    starts = [min(max(c, -b), n) + b for c, b, n in zip(coords, box, t.shape, strict=True)]
    return padded[tuple(slice(s, s + b) for s, b in zip(starts, box, strict=True))]


SHAPES = [
    ((41,), (16,)),
    ((37, 50), (8, 32)),
    ((130, 70), (64, 64)),
    ((5, 9, 20), (2, 4, 8)),
    ((3, 4, 5, 17), (2, 2, 3, 16)),
    ((2, 3, 4, 3, 24), (1, 2, 3, 2, 8)),
]


@pytest.mark.parametrize("fill", ["zero", "nan"])
@pytest.mark.parametrize("shape, box", SHAPES)
def test_load_and_store_of_boxes(shape, box, fill):
    rng = np.random.default_rng([*shape, len(fill)])
    dtype = torch.bfloat16 if fill == "nan" else torch.float16
    base, t = padded_view(rng, shape, dtype)
    memory, smem = memory_of(base), SharedMemory(32768)
    tmap = tensor_map(t, box, oob_fill=fill)
    assert tmap.box_bytes == np.prod(box) * 2
    inside = [0] * len(shape)
    outside = [2 * box[0] + shape[0], *inside[1:]]
    edges = [[n - b // 2 - 1 for n, b in zip(shape, box, strict=True)], [-1] * len(shape)]
    drawn = [[int(rng.integers(-b, n + 1)) for n, b in zip(shape, box, strict=True)] for _ in "123"]
    for coords in [inside, outside, *edges, *drawn]:
        expected = box_at(t, coords, box, float("nan") if fill == "nan" else 0.0)
        got = tma.read_global_box(memory, tmap, tuple(coords[::-1]))
        tma.write_shared_box(smem, tmap, 1024 + 256, got)
        placed = torch.from_numpy(smem.storage[1280 : 1280 + tmap.box_bytes]).view(dtype)
        torch.testing.assert_close(placed.view(box), expected, rtol=0, atol=0, equal_nan=True)

        new = torch.from_numpy(rng.standard_normal(box)).to(dtype)
        wanted = base.clone()
        target = wanted.as_strided(t.shape, t.stride(), t.storage_offset())
        for index in itertools.product(*map(range, box)):
            where = [c + i for c, i in zip(coords, index, strict=True)]
            if all(0 <= w < n for w, n in zip(where, shape, strict=True)):
                target[tuple(where)] = new[index]
        smem.storage[1280 : 1280 + tmap.box_bytes] = new.view(torch.uint8).numpy().reshape(-1)
        read = tma.read_shared_box(smem, tmap, 1280)
        smem.storage[:] = 0  # what was read no longer depends on shared memory
        tma.write_global_box(memory, tmap, tuple(coords[::-1]), read)
        assert torch.equal(base, wanted)


@pytest.mark.parametrize("address", [1024, 1024 + 128, 2048 + 640])
@pytest.mark.parametrize("mode", list(Swizzle))
def test_swizzled_boxes(mode, address):
    rng = np.random.default_rng([mode, address])
    columns = int(mode)
    t = torch.from_numpy(rng.integers(0, 255, (40, 256), dtype=np.uint8))
    smem = SharedMemory(32768)
    tmap = tensor_map(t, (24, columns), swizzle=mode)
    box = tma.read_global_box(memory_of(t), tmap, (16, 3))
    tma.write_shared_box(smem, tmap, address, box)
    for r, c in itertools.product(range(24), range(columns)):
        assert smem.storage[table_address(address + r * columns + c, mode)] == t[3 + r, 16 + c]
    assert (smem.storage != 0xFF).sum() == 24 * columns
    assert (tma.read_shared_box(smem, tmap, address) == box).all()


def test_broadcast_rows():
    row = torch.arange(64, dtype=torch.float16)
    t = row.expand(8, 64)
    box = tma.read_global_box(memory_of(row), tensor_map(t, (16, 32)), (32, -4))
    got = torch.from_numpy(box).view(torch.float16)
    assert (got[4:12] == row[32:]).all() and (got[:4] == 0).all() and (got[12:] == 0).all()


def test_faults():
    t = torch.zeros(16, 64, dtype=torch.float16)
    memory, smem = GlobalMemory(), SharedMemory(1024)
    memory.add(t.data_ptr(), t.nbytes - 128, "t")
    tmap = tensor_map(t, (4, 32))
    box = tma.read_global_box(memory, tmap, (0, 0))
    with pytest.raises(MemoryFault, match="not all inside t"):
        tma.read_global_box(memory, tmap, (0, 12))
    with pytest.raises(MemoryFault, match="not all inside t"):
        tma.write_global_box(memory, tmap, (0, 12), box)
    with pytest.raises(MemoryFault, match="128-byte aligned, got 0x440"):
        tma.write_shared_box(smem, tmap, 1024 + 64, box)
    with pytest.raises(MemoryFault, match="256 bytes at 0x780"):
        tma.read_shared_box(smem, tmap, 1024 + 896)
    with pytest.raises(ProtocolError, match="rank 2"):
        tma.read_global_box(memory, tmap, (0, 0, 0))
    with pytest.raises(UnsupportedPtx, match="rows of 64 bytes under a swizzle of 128"):
        tma.read_shared_box(smem, tensor_map(t, (4, 32), swizzle=Swizzle.B128), 1024)


VALID = {
    "base": 1 << 20,
    "element_bytes": 2,
    "dims": (64, 64),
    "strides": (128,),
    "box": (64, 8),
    "swizzle": Swizzle.B128,
}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"base": 8}, "multiple of 16, got 0x8"),
        ({"element_bytes": 3}, "element size in bytes, got 3"),
        ({"dims": (), "strides": (), "box": ()}, "rank must be 1 to 5, got 0"),
        ({"dims": (8,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "rank must be 1 to 5"),
        ({"strides": (128, 128)}, "rank 2 has 1 strides"),
        ({"box": (64,)}, "rank 2 has 2 box extents"),
        ({"dims": (64, 0)}, r"dims must be in \[1, 2\^32\], got \(64, 0\)"),
        ({"dims": (64, 2**32 + 1)}, "dims must be in"),
        ({"strides": (120,)}, r"strides must be multiples of 16 bytes, got \(120,\)"),
        ({"strides": (2**40,)}, "strides must be in"),
        ({"strides": (-128,)}, "strides must be in"),
        ({"box": (64, 257)}, r"box extents must be in \[1, 256\]"),
        ({"box": (64, 0)}, "box extents must be in"),
        ({"box": (4, 8)}, "multiples of 16 bytes, got 8"),
        ({"box": (72, 8)}, "swizzle width of 128 bytes, got 144"),
        ({"swizzle": Swizzle.B64}, "swizzle width of 64 bytes, got 128"),
        ({"oob_fill": "one"}, "fill, got one"),
        ({"oob_fill": "nan", "element_bytes": 1}, "floating-point"),
    ],
)
def test_invalid_tensor_maps(change, words):
    TensorMap(**VALID)
    with pytest.raises(ValueError, match=words):
        TensorMap(**{**VALID, **change})


def test_largest_tensor_map():
    TensorMap(0, 1, (2**32,) * 5, (2**40 - 16,) * 4, (256,) * 5)

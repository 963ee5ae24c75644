"""Tensor memory: allocation, and the rule that a warp touches its own quarter of the lanes."""

import numpy as np
import pytest

from tlx_clc_plugin.emulator.errors import MemoryFault, ProtocolError
from tlx_clc_plugin.emulator.tensor_memory import TensorMemory


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("warp", [0, 1, 2, 3, 6])
def test_32x32b(warp, count):
    rng = np.random.default_rng([warp, count])
    tmem = TensorMemory()
    tmem.alloc(512)
    tmem.cells[:] = rng.integers(0, 2**32, tmem.cells.shape, dtype=np.uint32)
    before = tmem.cells.copy()
    column, lane = int(rng.integers(0, 512 - count + 1)), 32 * (warp % 4)
    address = lane << 16 | column
    registers = tmem.ld(address, count, warp)
    assert registers.shape == (count, 32)
    for thread in range(32):
        for i in range(count):
            # PTX ISA: register i of thread t is the cell of lane t and column i.
            assert registers[i, thread] == before[column + i, lane + thread]
    registers[:] = 7
    assert (tmem.cells == before).all()

    values = rng.integers(0, 2**32, (count, 32), dtype=np.uint32)
    tmem.st(address, values, warp)
    before[column : column + count, lane : lane + 32] = values
    assert (tmem.cells == before).all()


def test_lanes_of_another_warp():
    tmem = TensorMemory()
    tmem.alloc(32)
    for warp, lane in [(1, 0), (0, 32), (4, 96), (3, 100)]:
        with pytest.raises(MemoryFault, match=f"warp {warp} may touch .* got lane {lane}"):
            tmem.ld(lane << 16, 1, warp)
        with pytest.raises(MemoryFault, match=f"got lane {lane}"):
            tmem.st(lane << 16, np.zeros((1, 32), np.uint32), warp)


def test_columns_must_be_allocated():
    tmem = TensorMemory()
    with pytest.raises(MemoryFault, match="live allocations are none"):
        tmem.ld(0, 1, 0)
    tmem.alloc(64)
    tmem.ld(0, 64, 0)
    for column, count in [(0, 128), (63, 2), (64, 1)]:
        with pytest.raises(MemoryFault, match=rf"columns \[{column}, .* are \[0, 64\)"):
            tmem.ld(column, count, 0)


def test_allocation():
    tmem = TensorMemory()
    a, b, c = tmem.alloc(128), tmem.alloc(32), tmem.alloc(256)
    assert (a, b, c) == (0, 128, 160)
    assert tmem.alloc(128) is None  # 96 columns are left
    d = tmem.alloc(64)
    assert d == 416
    tmem.dealloc(b, 32)
    assert tmem.alloc(64) is None
    assert tmem.alloc(32) == b
    for address, columns in [(a, 128), (b, 32), (c, 256), (d, 64)]:
        tmem.dealloc(address, columns)
    assert not tmem.allocations
    assert tmem.alloc(512) == 0


@pytest.mark.parametrize("columns", [0, 16, 33, 96, 1024])
def test_bad_allocation_size(columns):
    with pytest.raises(ProtocolError, match=f"got {columns}"):
        TensorMemory().alloc(columns)


def test_bad_deallocation():
    tmem = TensorMemory()
    address = tmem.alloc(64)
    for at, columns in [(address, 32), (address + 32, 32)]:
        with pytest.raises(ProtocolError, match=rf"dealloc of {columns} columns .* \[0, 64\)"):
            tmem.dealloc(at, columns)
    tmem.dealloc(address, 64)
    with pytest.raises(ProtocolError, match="dealloc of 64"):
        tmem.dealloc(address, 64)


def test_no_allocation_after_relinquishing():
    tmem = TensorMemory()
    tmem.relinquish_alloc_permit()
    with pytest.raises(ProtocolError, match="relinquish"):
        tmem.alloc(32)


def test_unwritten_cells_are_nan():
    tmem = TensorMemory()
    address = tmem.alloc(32)
    assert np.isnan(tmem.ld(address, 32, 0).view(np.float32)).all()
    tmem.st(address, np.zeros((32, 32), np.uint32), 0)
    tmem.dealloc(address, 32)
    address = tmem.alloc(32)
    assert np.isnan(tmem.ld(address, 32, 0).view(np.float32)).all()

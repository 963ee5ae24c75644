"""Global and shared memory windows against plain byte slicing."""

import numpy as np
import pytest
import torch

from tlx_clc_plugin.emulator.errors import MemoryFault
from tlx_clc_plugin.emulator.memory import GlobalMemory, SharedMemory

SIZES = [1, 2, 4, 8, 16, 32]


def global_memory(**tensors):
    memory = GlobalMemory()
    for label, t in tensors.items():
        storage = t.untyped_storage()
        memory.add(storage.data_ptr(), storage.nbytes(), label)
    return memory


def random_bytes(rng, count):
    return torch.from_numpy(rng.integers(0, 256, count, dtype=np.uint8))


def some_addresses(rng, base, nbytes, size, lanes=32):
    slots = np.arange(-(-base // size) * size, base + nbytes - size + 1, size, dtype=np.uint64)
    return rng.choice(slots, lanes, replace=False)


@pytest.mark.parametrize("size", SIZES)
def test_global_load_and_store(size):
    rng = np.random.default_rng(size)
    # A base that is aligned to nothing still has aligned words inside.
    t = random_bytes(rng, 5003)
    memory = GlobalMemory()
    base = t.data_ptr() + 3
    memory.add(base, 5000, "t")
    addresses = some_addresses(rng, base, 5000, size)
    data = memory.load(addresses, size)
    assert data.shape == (32, size) and data.dtype == np.uint8
    for lane, address in enumerate(addresses.tolist()):
        offset = address - t.data_ptr()
        assert (data[lane] == t[offset : offset + size].numpy()).all()

    expected = t.clone()
    new = rng.integers(0, 256, (32, size), dtype=np.uint8)
    for lane, address in enumerate(addresses.tolist()):
        offset = address - t.data_ptr()
        expected[offset : offset + size] = torch.from_numpy(new[lane])
    memory.store(addresses, new)
    assert torch.equal(t, expected)


def test_lanes_in_several_allocations():
    rng = np.random.default_rng(1)
    a, b = random_bytes(rng, 256), random_bytes(rng, 256)
    memory = global_memory(a=a, b=b)
    addresses = np.array([b.data_ptr() + 8, a.data_ptr() + 16, b.data_ptr()], np.uint64)
    assert (memory.load(addresses, 4)[:, 0] == [b[8], a[16], b[0]]).all()
    memory.store(addresses, np.array([[1], [2], [3]], np.uint8))
    assert (b[8], a[16], b[0]) == (1, 2, 3)
    assert len(memory.load(addresses[:0], 4)) == 0


def test_faults_name_address_and_nearest_allocation():
    t = torch.zeros(64, dtype=torch.uint8)
    memory = global_memory(weights=t)
    base = t.data_ptr()
    with pytest.raises(MemoryFault, match="4 bytes past the last byte of weights"):
        memory.load(np.array([base, base + 67], np.uint64), 1)
    with pytest.raises(MemoryFault, match=f"{base - 8:#x} is in no .*8 bytes before weights"):
        memory.load(np.array([base, base - 8], np.uint64), 8)
    with pytest.raises(MemoryFault, match=f"{base + 2:#x} of a 4-byte access is misaligned"):
        memory.store(np.array([base, base + 2], np.uint64), np.zeros((2, 4), np.uint8))
    with pytest.raises(MemoryFault, match="there are none"):
        GlobalMemory().load(np.array([base], np.uint64), 1)


def test_access_across_the_end_of_an_allocation():
    buffer = torch.zeros(64, dtype=torch.uint8)
    memory = GlobalMemory()
    memory.add(buffer.data_ptr(), 60, "t")
    address = np.array([buffer.data_ptr() + 56], np.uint64)
    assert (memory.load(address, 4) == 0).all()
    for size in (8, 16):
        with pytest.raises(MemoryFault, match=f"{size} bytes at .* are not all inside t"):
            memory.load(address // size * size, size)


def test_overlapping_allocations_become_one():
    t = torch.arange(64, dtype=torch.uint8)
    memory = GlobalMemory()
    memory.add(t.data_ptr(), 32, "low")
    memory.add(t.data_ptr() + 48, 16, "high")
    memory.add(t.data_ptr() + 16, 40, "middle")
    memory.add(t.data_ptr(), 0, "empty")
    window = memory.window(t.data_ptr() + 40)
    assert (window.base, window.end) == (t.data_ptr(), t.data_ptr() + 64)
    assert all(label in window.label for label in ("low", "middle", "high"))


@pytest.mark.parametrize("size", SIZES)
def test_shared_memory(size):
    rng = np.random.default_rng(size)
    memory = SharedMemory(4096)
    assert memory.base == 1024
    addresses = some_addresses(rng, memory.base, 4096, size).astype(np.uint32)
    assert (memory.load(addresses, size) == 0xFF).all()
    data = rng.integers(0, 255, (32, size), dtype=np.uint8)
    memory.store(addresses, data)
    assert (memory.load(addresses, size) == data).all()
    for lane, address in enumerate(addresses.tolist()):
        assert (memory.storage[address : address + size] == data[lane]).all()
    assert (memory.storage != 0xFF).sum() == data.size


def test_shared_memory_starts_as_nan():
    memory = SharedMemory(64)
    raw = torch.from_numpy(memory.data)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert raw.view(dtype).isnan().all()


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("offset", [1020, 1024 + 100, 2**24 + 1024, 0])
def test_shared_memory_bounds(offset, size):
    memory = SharedMemory(100)
    addresses = np.array([1024, 1024 + 96], np.uint32)
    memory.load(addresses, size)
    addresses[1] = offset
    with pytest.raises(MemoryFault, match=f"{offset:#x} are not all inside shared memory"):
        memory.load(addresses, size)
    with pytest.raises(MemoryFault, match=f"{offset:#x} are not all inside shared memory"):
        memory.store(addresses, np.zeros((2, size), np.uint8))
    assert (memory.storage == 0xFF).all()


def test_shared_memory_alignment():
    with pytest.raises(MemoryFault, match="0x402 of a 4-byte access is misaligned"):
        SharedMemory(100).load(np.array([1024, 1026], np.uint32), 4)


def test_access_size_must_be_a_power_of_two():
    with pytest.raises(ValueError, match="got 3"):
        SharedMemory(64).load(np.array([1024]), 3)

"""tcgen05.mma against float64 products of matrices that the test lays out byte by byte."""

import numpy as np
import pytest
import torch

from tlx_clc_plugin.emulator.descriptors import InstructionDescriptor, SmemDescriptor
from tlx_clc_plugin.emulator.errors import MemoryFault, UnsupportedPtx
from tlx_clc_plugin.emulator.memory import SharedMemory
from tlx_clc_plugin.emulator.mma import mma
from tlx_clc_plugin.emulator.swizzle import Swizzle
from tlx_clc_plugin.emulator.tensor_memory import TensorMemory

WIDTHS = {Swizzle.NONE: 0, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
TORCH_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
TORCH_TYPES |= {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
K_PER_MMA = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4"}


def physical(address, width):
    """Where a byte goes, by the picture of 16-byte chunks: within each 8 rows of ``width`` bytes
    (the 128-byte pattern seen through rows of 128 bytes), chunk c of row r is at c xor r."""
    line, chunk, byte = address // 128, address // 16 % 8, address % 16
    lanes = {0: 1, 32: 2, 64: 4, 128: 8}[width]
    return line * 128 + (chunk ^ (line % lanes)) * 16 + byte


class Placed:
    """A (extent, K) matrix in shared memory, and the descriptor of each of its K slices."""

    def __init__(self, values, start, mn_major, swizzle):
        extent, depth = values.shape
        raw = values.contiguous().view(torch.uint8).numpy().reshape(extent, depth, -1)
        size = raw.shape[2]
        width = WIDTHS[swizzle]
        self.bytes = {}
        self.start, self.swizzle = start, swizzle
        span = width or 16  # bytes of one row of a core matrix
        # Atoms of 8 rows x span bytes, along the contiguous dimension first.
        contiguous, strided = (extent, depth) if mn_major else (depth, extent)
        along = contiguous * size // span  # atoms along the contiguous dimension
        # A gap between atoms' groups shows a mixed up leading and stride offset.
        atom = 8 * span
        next_strided = atom
        next_contiguous = strided // 8 * atom + (1024 if along > 1 else 0)
        if swizzle is Swizzle.NONE:
            next_contiguous += 128
        for i in range(extent):
            for k in range(depth):
                c, s = (i, k) if mn_major else (k, i)
                offset = c * size
                linear = (
                    start
                    + offset // span * next_contiguous
                    + s // 8 * next_strided
                    + s % 8 * span
                    + offset % span
                )
                for byte in range(size):
                    self.bytes[physical(linear + byte, width)] = raw[i, k, byte]
        if swizzle is Swizzle.NONE and mn_major:
            leading, stride = next_strided, next_contiguous
        elif swizzle is Swizzle.NONE or mn_major:
            leading, stride = next_contiguous, next_strided
        else:
            leading, stride = 0, next_strided  # a swizzled K-major slice stays in one row
        self.leading, self.stride = leading, stride
        self.slice_start = (
            (lambda k: start + k // 8 * next_strided)
            if mn_major
            else (lambda k: start + k * size // span * next_contiguous + k * size % span)
        )

    def write(self, smem):
        for address, value in self.bytes.items():
            smem.storage[address] = value

    def descriptor(self, k):
        return SmemDescriptor(self.slice_start(k), self.leading, self.stride, self.swizzle).encode()


def run(a, b, a_major, b_major, swizzles, input_type, *, d_column=0, first_accumulate=False, **kw):
    """A (M, K) and B (N, K) through as many instructions as K needs; D as (M, N) float32."""
    smem = SharedMemory(200 * 1024)
    tmem = TensorMemory()
    tmem.alloc(512)
    # Starts that no swizzle's period divides: what counts is the absolute address.
    placed_a = Placed(a, 1024 + 128, a_major == "mn", swizzles[0])
    placed_b = Placed(b, 100 * 1024 + 384, b_major == "mn", swizzles[1])
    placed_a.write(smem)
    placed_b.write(smem)
    instruction = InstructionDescriptor(
        m=a.shape[0],
        n=b.shape[0],
        input_type=input_type,
        transpose_a=a_major == "mn",
        transpose_b=b_major == "mn",
        **kw,
    )
    for i, k in enumerate(range(0, a.shape[1], K_PER_MMA[input_type])):
        mma(
            [tmem],
            [smem],
            d_column,
            placed_a.descriptor(k),
            placed_b.descriptor(k),
            instruction.encode(),
            kind=KINDS[input_type],
            accumulate=first_accumulate or i > 0,
        )
    column = d_column & 0xFFFF
    return tmem.cells[column : column + b.shape[0]].view(np.float32).T.copy(), tmem


def random(rng, shape, input_type):
    return torch.from_numpy(rng.standard_normal(shape)).to(TORCH_TYPES[input_type])


def assert_product(d, a, b):
    """Within the rounding of fp32 sums of exact products."""
    a, b = a.double().numpy(), b.double().numpy()
    bound = a.shape[1] * 2.0**-23 * (np.abs(a) @ np.abs(b).T)
    assert (np.abs(d - a @ b.T) <= bound).all()


@pytest.mark.parametrize("b_major", ["k", "mn"])
@pytest.mark.parametrize("a_major", ["k", "mn"])
@pytest.mark.parametrize("swizzle", list(Swizzle))
def test_layouts(swizzle, a_major, b_major):
    rng = np.random.default_rng([swizzle, len(a_major), len(b_major)])
    n = int(rng.choice([64, 128, 192]))
    input_type = str(rng.choice(["f16", "bf16"]))
    # As in compiled kernels, K-major rows are as long as the swizzle is wide.
    k = 32 if swizzle is Swizzle.NONE else swizzle // 2
    a = random(rng, (128, k), input_type)
    b = random(rng, (n, k), input_type)
    d, _ = run(a, b, a_major, b_major, (swizzle, swizzle), input_type)
    assert_product(d, a, b)


@pytest.mark.parametrize("seed", range(4))
def test_operands_of_different_layouts(seed):
    rng = np.random.default_rng(seed)
    a, b = random(rng, (128, 16), "f16"), random(rng, (64, 16), "f16")
    majors = rng.choice(["k", "mn"], 2)
    swizzles = [Swizzle(width) for width in rng.choice(list(Swizzle), 2)]
    d, _ = run(a, b, *majors, swizzles, "f16")
    assert_product(d, a, b)


@pytest.mark.parametrize("n", [16, 48, 240, 256])
def test_writes_n_columns_only(n):
    rng = np.random.default_rng(n)
    a, b = random(rng, (128, 16), "f16"), random(rng, (n, 16), "f16")
    d, tmem = run(a, b, "k", "k", (Swizzle.B32, Swizzle.B32), "f16", d_column=32)
    assert_product(d, a, b)
    outside = np.r_[0:32, 32 + n : 512]
    assert np.isnan(tmem.cells.view(np.float32)[outside]).all()


@pytest.mark.parametrize("negate_a", [False, True])
@pytest.mark.parametrize("negate_b", [False, True])
def test_negate(negate_a, negate_b):
    rng = np.random.default_rng(5)
    a, b = random(rng, (128, 16), "bf16"), random(rng, (64, 16), "bf16")
    d, _ = run(a, b, "k", "k", (Swizzle.B32,) * 2, "bf16", negate_a=negate_a, negate_b=negate_b)
    assert_product(d, -a if negate_a else a, -b if negate_b else b)


def test_accumulation_reads_poison_unless_told_not_to():
    rng = np.random.default_rng(6)
    a, b = random(rng, (128, 16), "f16"), random(rng, (64, 16), "f16")
    d, _ = run(a, b, "k", "k", (Swizzle.B32,) * 2, "f16", first_accumulate=True)
    assert np.isnan(d).all()


def test_f16_subnormals_and_infinities():
    a = torch.zeros(128, 16, dtype=torch.float16)
    b = torch.zeros(64, 16, dtype=torch.float16)
    a[3, 0], b[:, 0] = 2.0**-24, 2.0**-14
    a[4, 1], b[:, 1] = torch.inf, -1
    d, _ = run(a, b, "k", "k", (Swizzle.B32,) * 2, "f16")
    assert (d[3] == 2.0**-38).all()
    assert (d[4] == -np.inf).all()
    assert (d[5] == 0).all()


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("types", [("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2")])
@pytest.mark.parametrize("swizzle", list(Swizzle))
def test_eight_bit_types(swizzle, types, major):
    rng = np.random.default_rng([swizzle, len(major)])
    k = max(32, int(swizzle))
    a, b = random(rng, (128, k), types[0]), random(rng, (128, k), types[1])
    b_type = types[1] if types[0] != types[1] else None
    d, _ = run(a, b, major, major, (swizzle, swizzle), types[0], b_type=b_type)
    assert_product(d, a, b)


@pytest.mark.parametrize("lane", [0, 16])
@pytest.mark.parametrize("n", [8, 64, 256])
def test_sixty_four_rows(n, lane):
    """Row i is in lane 32 (i / 16) + i % 16 of the tensor memory, or 16 lanes further."""
    rng = np.random.default_rng(n)
    a, b = random(rng, (64, 32), "f16"), random(rng, (n, 32), "f16")
    _, tmem = run(a, b, "k", "k", (Swizzle.B64,) * 2, "f16", d_column=lane << 16)
    cells = tmem.cells[:n].view(np.float32).T
    used = [32 * (i // 16) + i % 16 + lane for i in range(64)]
    assert_product(cells[used], a, b)
    assert np.isnan(np.delete(cells, used, 0)).all()


def test_tf32_ignores_the_low_mantissa_bits():
    rng = np.random.default_rng(7)
    a, b = random(rng, (128, 32), "tf32"), random(rng, (64, 32), "tf32")
    d, _ = run(a, b, "k", "k", (Swizzle.B128,) * 2, "tf32")
    truncated = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b)]
    assert_product(d, *truncated)


@pytest.mark.parametrize(
    "m, n, input_type, changes, words",
    [
        (192, 64, "f16", {}, "M = 192"),
        (128, 24, "f16", {}, "N = 24"),
        (128, 8, "f16", {}, "N = 8"),
        (128, 272, "f16", {}, "N = 272"),
        (128, 64, "f16", {"accumulator_type": "f16"}, "f16 accumulator"),
        (128, 64, "tf32", {"transpose_a": True}, "MN-major tf32"),
    ],
)
def test_unmodelled_instructions(m, n, input_type, changes, words):
    descriptor = SmemDescriptor(1024, 0, 256, Swizzle.B32).encode()
    instruction = InstructionDescriptor(m=m, n=n, input_type=input_type, **changes).encode()
    tmem = TensorMemory()
    tmem.alloc(512)
    with pytest.raises(UnsupportedPtx, match=words):
        mma(
            [tmem],
            [SharedMemory(32768)],
            0,
            descriptor,
            descriptor,
            instruction,
            kind=KINDS[input_type],
            accumulate=False,
        )


@pytest.mark.parametrize("start, fits", [(1024, True), (1040, False), (0, False)])
def test_operands_out_of_bounds(start, fits):
    # 128 rows of 32 bytes fill the 4 KiB of shared memory from offset 1024 on.
    descriptor = SmemDescriptor(start, 128, 256, Swizzle.NONE).encode()
    instruction = InstructionDescriptor(m=128, n=128, input_type="f16").encode()
    tmem = TensorMemory()
    tmem.alloc(128)
    arguments = ([tmem], [SharedMemory(4096)], 0, descriptor, descriptor, instruction)
    if fits:
        mma(*arguments, kind="f16", accumulate=False)
    else:
        with pytest.raises(MemoryFault, match="not all inside"):
            mma(*arguments, kind="f16", accumulate=False)


def test_accumulator_outside_the_allocation():
    descriptor = SmemDescriptor(1024, 128, 256, Swizzle.NONE).encode()
    instruction = InstructionDescriptor(m=128, n=128, input_type="f16").encode()
    tmem = TensorMemory()
    tmem.alloc(128)
    with pytest.raises(MemoryFault, match=r"columns \[16, 144\)"):
        mma(
            [tmem],
            [SharedMemory(4096)],
            16,
            descriptor,
            descriptor,
            instruction,
            kind="f16",
            accumulate=False,
        )

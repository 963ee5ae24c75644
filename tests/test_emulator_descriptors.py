"""Descriptor encodings against values of compiled kernels and hand-placed bits."""

import numpy as np
import pytest

from tlx_clc_plugin.emulator.descriptors import InstructionDescriptor, SmemDescriptor
from tlx_clc_plugin.emulator.errors import UnsupportedPtx
from tlx_clc_plugin.emulator.swizzle import Swizzle


@pytest.mark.parametrize(
    "bits, fields",
    [
        # Triton's constants for A (K-major) and B (MN-major, 64 x 256) of fp16, 128-byte swizzle.
        (0x4000404000000000, (0, 0, 1024, Swizzle.B128)),
        (0x4000404002000000, (0, 8192, 1024, Swizzle.B128)),
        # Bit by bit: version 0b001 at 46, fields in units of 16 bytes at 0, 16 and 32, mode at 61.
        (1 << 46, (0, 0, 0, Swizzle.NONE)),
        (1 << 46 | 1, (16, 0, 0, Swizzle.NONE)),
        (1 << 46 | 0x3FFF, (0x3FFF0, 0, 0, Swizzle.NONE)),
        (1 << 46 | 1 << 16, (0, 16, 0, Swizzle.NONE)),
        (1 << 46 | 1 << 29, (0, 0x20000, 0, Swizzle.NONE)),
        (1 << 46 | 1 << 32, (0, 0, 16, Swizzle.NONE)),
        (1 << 46 | 1 << 45, (0, 0, 0x20000, Swizzle.NONE)),
        (1 << 46 | 6 << 61, (0, 0, 0, Swizzle.B32)),
        (1 << 46 | 4 << 61, (0, 0, 0, Swizzle.B64)),
        (1 << 46 | 2 << 61, (0, 0, 0, Swizzle.B128)),
    ],
)
def test_smem_descriptor(bits, fields):
    descriptor = SmemDescriptor(*fields)
    assert SmemDescriptor.decode(bits) == descriptor
    assert descriptor.encode() == bits


@pytest.mark.parametrize("seed", range(3))
def test_smem_descriptor_round_trip(seed):
    rng = np.random.default_rng(seed)
    for mode in Swizzle:
        offsets = (16 * rng.integers(0, 2**14, 3)).tolist()
        descriptor = SmemDescriptor(*offsets, mode)
        assert SmemDescriptor.decode(descriptor.encode()) == descriptor


@pytest.mark.parametrize(
    "flipped, words",
    [(bit, "bits 46-48") for bit in (46, 47, 48)]
    + [(bit, "base offset") for bit in (49, 50, 51)]
    + [(52, "leading dimension")]
    + [(bit, "must be zero") for bit in (14, 15, 30, 31, *range(53, 61))]
    + [(61, "swizzle field of a shared memory descriptor 1")],
)
def test_smem_descriptor_fields_that_are_not_modelled(flipped, words):
    with pytest.raises(UnsupportedPtx, match=words):
        SmemDescriptor.decode(1 << 46 ^ 1 << flipped)


@pytest.mark.parametrize("offset", [8, -16, 1 << 18])
def test_smem_descriptor_offsets_that_do_not_fit(offset):
    for place in range(3):
        offsets = [0, 0, 0]
        offsets[place] = offset
        with pytest.raises(ValueError, match="multiple of 16 below 2"):
            SmemDescriptor(*offsets, Swizzle.NONE).encode()


# M = 128 at bit 24 in units of 16, N = 64 at bit 17 in units of 8, D fp32 at bit 4.
BASE = 128 // 16 << 24 | 64 // 8 << 17 | 1 << 4


@pytest.mark.parametrize(
    "bits, kind, fields",
    [
        # Triton's constant for a 128 x 256 fp16 tile with a row-major B.
        (138477584, "f16", {"n": 256, "transpose_b": True}),
        (BASE, "f16", {}),
        (BASE ^ 1 << 4, "f16", {"accumulator_type": "f16"}),
        (BASE | 1 << 7 | 1 << 10, "f16", {"input_type": "bf16"}),
        (BASE | 2 << 7 | 2 << 10, "tf32", {"input_type": "tf32"}),
        (BASE | 1 << 13, "f16", {"negate_a": True}),
        (BASE | 1 << 14, "f16", {"negate_b": True}),
        (BASE | 1 << 15, "f16", {"transpose_a": True}),
        (BASE | 1 << 16, "f16", {"transpose_b": True}),
        (BASE ^ 8 << 24 ^ 4 << 24, "f16", {"m": 64}),
        (BASE ^ 8 << 24 ^ 16 << 24, "f16", {"m": 256}),
        (BASE ^ 8 << 17 ^ 1 << 17, "f16", {"n": 8}),
        (BASE ^ 8 << 17 ^ 63 << 17, "f16", {"n": 504}),
    ],
)
def test_instruction_descriptor(bits, kind, fields):
    descriptor = InstructionDescriptor(**{"m": 128, "n": 64, "input_type": "f16", **fields})
    assert InstructionDescriptor.decode(bits, kind) == descriptor
    assert descriptor.encode() == bits


@pytest.mark.parametrize(
    "flipped, words",
    [(bit, "sparsity") for bit in (0, 1, 2)]
    + [(3, "saturation")]
    + [(5, "type 3 of D")]
    + [(bit, "must be zero") for bit in (6, 23, 29)]
    + [(8, "type 2 of A is not one of kind f16"), (9, "type 4 of A")]
    + [(10, "types 0 of A and 1 of B differ")]
    + [(bit, "maximum shift") for bit in (30, 31)],
)
def test_instruction_descriptor_fields_that_are_not_modelled(flipped, words):
    with pytest.raises(UnsupportedPtx, match=words):
        InstructionDescriptor.decode(BASE ^ 1 << flipped, "f16")


@pytest.mark.parametrize("kind", ["i8", "mxf4", "mxf8f6f4"])
def test_other_kinds(kind):
    with pytest.raises(UnsupportedPtx, match=f"kind {kind}"):
        InstructionDescriptor.decode(BASE, kind)


def test_types_belong_to_a_kind():
    with pytest.raises(UnsupportedPtx, match="type 0 of A is not one of kind tf32"):
        InstructionDescriptor.decode(BASE, "tf32")


@pytest.mark.parametrize("m, n", [(120, 64), (512, 64), (128, 60), (128, 512), (-16, 64)])
def test_shapes_that_do_not_fit(m, n):
    with pytest.raises(ValueError, match=f"{m}x{n}"):
        InstructionDescriptor(m, n, "f16").encode()

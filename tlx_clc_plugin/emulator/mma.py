"""tcgen05.mma: D (+)= A @ B with A and B in shared memory and D in tensor memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from .descriptors import TCGEN05, InstructionDescriptor, SmemDescriptor
from .errors import MemoryFault, UnsupportedPtx
from .memory import DYNAMIC_SMEM_OFFSET, SharedMemory
from .swizzle import Swizzle, swizzle
from .tensor_memory import LANES, TensorMemory
from .tma import SWIZZLE_PERIOD

GRANULE_BYTES = 16
# Every kind reads 32 bytes of each row or column along K: 32, 16 or 8 elements (PTX ISA,
# tcgen05.mma).
K_BYTES = 32
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}

# A table is faster than numpy's conversion of halves.
_F16_TO_F32 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_FP8_TO_F32 = {
    name: torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy()
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2))
}
_TF32_MASK = np.uint32(0xFFFFE000)  # the 10 mantissa bits that tensor cores read


def mma(
    tmems: Sequence[TensorMemory],
    smems: Sequence[SharedMemory],
    d_address: int,
    a_bits: int,
    b_bits: int,
    instruction_bits: int,
    *,
    kind: str,
    accumulate: bool,
) -> None:
    """Carry out one tcgen05.mma of ``kind`` "f16", "tf32" or "f8f6f4", in a CTA or a pair of them.

    ``tmems``, ``smems``: of each CTA. Of a pair each CTA holds half of the rows of A and of D,
    and half of the columns of B; descriptors and ``d_address`` are the same for both.

    ``a_bits``, ``b_bits``: 64-bit shared memory descriptors; ``instruction_bits``: the 32-bit
    instruction descriptor; ``d_address``: tensor memory address of D, which is overwritten
    unless ``accumulate``. D has 128 rows a CTA, one a lane, and N columns of fp32; or 64, of which
    16 are in each quarter of the lanes (PTX ISA, "Layout F" of tcgen05.mma).

    Products are summed in fp32, in no stated order, like the hardware's. Raises UnsupportedPtx
    for shapes, types and layouts that are not modelled, MemoryFault for operands out of bounds.
    """
    instruction = InstructionDescriptor.decode(instruction_bits, kind)
    ctas = len(tmems)
    _check(instruction, ctas)
    lane, rows = d_address >> 16, instruction.m // ctas
    if lane not in ((0, 16) if rows == 64 else (0,)):
        raise MemoryFault(f"an accumulator of {rows} rows begins at lane 0, got {lane}")
    b_type, share = instruction.b_type or instruction.input_type, instruction.n // ctas
    b = [smem_operand(x, b_bits, share, instruction.transpose_b, b_type) for x in smems]
    b = np.concatenate(b) if ctas > 1 else b[0]
    for tmem, smem in zip(tmems, smems, strict=True):
        a = smem_operand(smem, a_bits, rows, instruction.transpose_a, instruction.input_type)
        product = b @ a.T  # D transposed, as tensor memory has it: columns first
        if instruction.negate_a != instruction.negate_b:
            np.negative(product, out=product)
        d = tmem.cells[tmem.columns(d_address & 0xFFFF, instruction.n)].view(np.float32)
        if rows == 64:
            d = d.reshape(-1, 4, 32)[:, :, lane : lane + 16]
            product = product.reshape(-1, 4, 16)
        if accumulate:
            d += product
        else:
            d[...] = product


def _check(instruction: InstructionDescriptor, ctas: int) -> None:
    if instruction.m != LANES * ctas and (instruction.m, ctas) != (64, 1):
        raise UnsupportedPtx(f"tcgen05.mma with M = {instruction.m} in {ctas} CTAs")
    step = 8 if instruction.m == 64 else 16 * ctas
    if instruction.n % step or not step <= instruction.n <= 256:
        raise UnsupportedPtx(
            f"tcgen05.mma with N = {instruction.n}; M = {instruction.m} takes multiples of {step} "
            "up to 256"
        )
    if instruction.accumulator_type != "f32":
        raise UnsupportedPtx("tcgen05.mma with an f16 accumulator")
    if instruction.input_type == "tf32" and (instruction.transpose_a or instruction.transpose_b):
        raise UnsupportedPtx("tcgen05.mma of MN-major tf32 operands")


def smem_operand(
    smem: SharedMemory,
    bits: int,
    extent: int,
    mn_major: bool,
    input_type: str,
    version: int = TCGEN05,
) -> np.ndarray:
    """A or B as float32 of shape (extent, K), ``extent`` being M or N, from its descriptor.

    ``version``: of the descriptor. Raises MemoryFault if the matrix is not all shared memory.
    """
    layout = SmemDescriptor.decode(bits, version)
    phase = layout.start % SWIZZLE_PERIOD
    gather = _mn_major_granules if mn_major else _k_major_granules
    size = ELEMENT_BYTES[input_type]
    offsets = layout.leading_bytes, layout.stride_bytes
    index, last = gather(extent, size, layout.swizzle, *offsets, phase)
    first = (layout.start - phase) // GRANULE_BYTES
    if layout.start < DYNAMIC_SMEM_OFFSET or (first + last + 1) * GRANULE_BYTES > smem.window_end:
        raise MemoryFault(
            f"operand of an mma (descriptor {bits:#x}, bytes {layout.start:#x} to "
            f"{(first + last + 1) * GRANULE_BYTES:#x}) is not all inside {smem}"
        )
    values = to_float32(smem.granules[first:].take(index), input_type)
    return values.T if mn_major else values


def to_float32(words: np.ndarray, input_type: str) -> np.ndarray:
    """Each row of words (of any size) as a row of its elements in float32."""
    if input_type == "f16":
        return _F16_TO_F32.take(words.view(np.uint16))
    if input_type == "bf16":
        return np.left_shift(words.view(np.uint16), 16, dtype=np.uint32).view(np.float32)
    if input_type == "tf32":
        return (words.view(np.uint32) & _TF32_MASK).view(np.float32)
    return _FP8_TO_F32[input_type].take(words.view(np.uint8))


# The canonical layouts (PTX ISA, "Canonical layouts" of tcgen05; CUTLASS
# cute/atom/mma_traits_sm100.hpp), in 16-byte granules. Without swizzle a core matrix is 8 rows of
# 16 bytes; with one, 8 rows of the swizzle's width W. Both return the granule indices relative to
# the 1024 aligned bytes in which the operand starts, and the largest of them.


@lru_cache(maxsize=1024)
def _k_major_granules(
    extent: int, size: int, mode: Swizzle, leading: int, stride: int, phase: int
) -> tuple[np.ndarray, int]:
    """Shape (extent, 2): rows of M or N, granules along K.

    Eight rows are ``stride`` apart; without swizzle, granules along K are ``leading`` apart.
    """
    row = np.arange(extent, dtype=np.intp)[:, None]
    k = np.arange(K_BYTES // GRANULE_BYTES, dtype=np.intp)
    step = leading if mode is Swizzle.NONE else GRANULE_BYTES
    return _swizzled(phase + row // 8 * stride + row % 8 * mode + k * step, mode)


@lru_cache(maxsize=1024)
def _mn_major_granules(
    extent: int, size: int, mode: Swizzle, leading: int, stride: int, phase: int
) -> tuple[np.ndarray, int]:
    """Elements of ``size`` bytes along K, granules along M or N.

    Blocks of W bytes along M or N are ``leading`` apart, eight elements along K ``stride``;
    without swizzle the two change roles.
    """
    k = np.arange(K_BYTES // size, dtype=np.intp)[:, None]
    granule = np.arange(extent * size // GRANULE_BYTES, dtype=np.intp)
    if mode is Swizzle.NONE:
        leading, stride = stride, leading
    per_block = mode // GRANULE_BYTES
    block = granule // per_block * leading + granule % per_block * GRANULE_BYTES
    return _swizzled(phase + block + k // 8 * stride + k % 8 * mode, mode)


def _swizzled(linear: np.ndarray, mode: Swizzle) -> tuple[np.ndarray, int]:
    index = swizzle(linear, mode) // GRANULE_BYTES
    return index, int(index.max())

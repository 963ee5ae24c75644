"""The end of split-K: partial sums added up in a fixed order."""

import triton
import triton.language as tl
from triton.language.extra import cuda

from .tiles import tile_offsets

# Rows that a CTA adds up: few, so that a handful of tiles keeps many SMs busy.
REDUCE_ROWS = 4
_UNROLL = tl.constexpr(8)


@triton.jit(do_not_specialize=("M", "N", "num_full_tiles", "split_k", "stride_cm"))
def reduce_kernel(
    workspace_ptr,
    c_ptr,
    bias_ptr,
    M,
    N,
    num_full_tiles,
    split_k,
    stride_cm,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    ROWS: tl.constexpr,
):
    """C = sum over split_k parts (+ bias) for the tiles from num_full_tiles on.

    grid: (tiles, BLOCK_SIZE_M / ROWS). ``workspace_ptr``: fp32, one BLOCK_SIZE_M x BLOCK_SIZE_N
    block per part, the parts of a tile one after another. To be launched with ``launch_pdl``
    (programmatic dependent launch): only its start overlaps the kernel that writes the parts.
    """
    tile = tl.program_id(0)
    offs_m, offs_n = tile_offsets(
        num_full_tiles + tile, M, N, BLOCK_SIZE_M, BLOCK_SIZE_N, GROUP_SIZE_M
    )
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_SIZE_N)
    part_ptr = workspace_ptr + tile.to(tl.int64) * split_k * (BLOCK_SIZE_M * BLOCK_SIZE_N)
    part_ptrs = part_ptr + rows[:, None] * BLOCK_SIZE_N + columns[None, :]
    acc = tl.zeros((ROWS, BLOCK_SIZE_N), dtype=tl.float32)
    cuda.gdc_wait()
    for part in range(0, split_k, _UNROLL):
        # Loads first, so that they are under way together; the order of the sum stays.
        for i in tl.static_range(_UNROLL):
            acc += tl.load(
                part_ptrs + (part + i) * (BLOCK_SIZE_M * BLOCK_SIZE_N),
                mask=part + i < split_k,
                other=0.0,
            )
    offs_cm = offs_m + rows
    offs_cn = offs_n + columns
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_cn, mask=offs_cn < N, other=0.0).to(tl.float32)[None, :]
    c_ptrs = c_ptr + offs_cm[:, None].to(tl.int64) * stride_cm + offs_cn[None, :]
    mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)

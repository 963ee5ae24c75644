"""What the pipelines of both architectures share: rings, tile order and the TMA load task."""

import triton
import triton.language as tl
import triton.language.extra.tlx as tlx


@triton.jit
def ring(count, SIZE: tl.constexpr):
    """Slot and phase of use number ``count`` of a ring of ``SIZE`` buffers."""
    return count % SIZE, (count // SIZE) & 1


@triton.jit
def tile_offsets(
    tile_id,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """Row and column of a tile's first element; groups of GROUP_SIZE_M tile rows are walked
    column by column, so that tiles in flight together share operands in L2."""
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    full_group_m = min(num_pid_m, GROUP_SIZE_M)  # no more than tiles there are: no overflow
    num_pid_in_group = full_group_m * num_pid_n
    first_pid_m = (tile_id // num_pid_in_group) * full_group_m
    group_size_m = min(num_pid_m - first_pid_m, full_group_m)
    pid_in_group = tile_id % num_pid_in_group
    pid_m = first_pid_m + pid_in_group % group_size_m
    pid_n = pid_in_group // group_size_m
    return pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N


@triton.jit
def load_tile(
    offs_m,
    offs_n,
    k_begin,
    k_end,
    loads,
    a_desc,
    b_desc,
    buffers_A,
    buffers_B,
    smem_full_bars,
    smem_empty_bars,
    BLOCK_SIZE_K: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    LOAD_BYTES: tl.constexpr,
):
    """Load task: TMA loads of K blocks [k_begin, k_end). ``loads`` counts blocks over all tiles."""
    for k in range(k_begin, k_end):
        buf, phase = ring(loads, NUM_SMEM_BUFFERS)
        tlx.barrier_wait(smem_empty_bars[buf], phase ^ 1)
        tlx.barrier_expect_bytes(smem_full_bars[buf], LOAD_BYTES)
        offs_k = k * BLOCK_SIZE_K
        if A_ROW_MAJOR:
            tlx.async_descriptor_load(a_desc, buffers_A[buf], [offs_m, offs_k], smem_full_bars[buf])
        else:
            tlx.async_descriptor_load(a_desc, buffers_A[buf], [offs_k, offs_m], smem_full_bars[buf])
        if B_ROW_MAJOR:
            tlx.async_descriptor_load(b_desc, buffers_B[buf], [offs_k, offs_n], smem_full_bars[buf])
        else:
            tlx.async_descriptor_load(b_desc, buffers_B[buf], [offs_n, offs_k], smem_full_bars[buf])
        loads += 1
    return loads

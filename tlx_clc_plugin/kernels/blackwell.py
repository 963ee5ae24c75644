"""Warp-specialised Blackwell GEMM: C = A @ B (+ bias), one tile pipeline under any scheduler.

Three asynchronous tasks share rings of buffers, each step guarded by an mbarrier:

    load (1 warp)  --smem ring-->  MMA (1 warp)  --tmem ring-->  epilogue (4 warps)  --> C
"""

import triton
import triton.language as tl
import triton.language.extra.tlx as tlx

from .schedulers import EPILOGUE, LOAD, MMA, ClcScheduler, StaticPersistentScheduler
from .tiles import load_tile, ring, tile_offsets


@triton.jit
def _mma_tile(
    step,
    k_tiles,
    dots,
    buffers_A,
    buffers_B,
    tmem_buffers,
    smem_full_bars,
    smem_empty_bars,
    tmem_full_bars,
    tmem_empty_bars,
    NUM_SMEM_BUFFERS: tl.constexpr,
    NUM_TMEM_BUFFERS: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
):
    """MMA task: one accumulator over the tile's K blocks. ``dots`` counts blocks over all tiles."""
    tmem_buf, tmem_phase = ring(step, NUM_TMEM_BUFFERS)
    tlx.barrier_wait(tmem_empty_bars[tmem_buf], tmem_phase ^ 1)
    for k in range(0, k_tiles):
        buf, phase = ring(dots, NUM_SMEM_BUFFERS)
        tlx.barrier_wait(smem_full_bars[buf], phase)
        if A_ROW_MAJOR:
            a = buffers_A[buf]
        else:
            a = tlx.local_trans(buffers_A[buf])
        if B_ROW_MAJOR:
            b = buffers_B[buf]
        else:
            b = tlx.local_trans(buffers_B[buf])
        # The commit that follows the MMA frees the smem slot once it has been read.
        tlx.async_dot(
            a,
            b,
            tmem_buffers[tmem_buf],
            use_acc=k > 0,
            mBarriers=[smem_empty_bars[buf]],
            out_dtype=tl.float32,
        )
        dots += 1
    # Committed straight to the epilogue's barrier: this warp goes on to the next tile.
    tlx.tcgen05_commit(tmem_full_bars[tmem_buf])
    return dots


@triton.jit
def _epilogue_tile(
    step,
    offs_m,
    offs_n,
    N,
    c_desc,
    bias_ptr,
    tmem_buffers,
    buffers_C,
    tmem_full_bars,
    tmem_empty_bars,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_TMEM_BUFFERS: tl.constexpr,
    NUM_STORE_BUFFERS: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
):
    """Epilogue task: accumulator -> registers (+ bias in fp32, rounded once) -> smem -> C."""
    tmem_buf, tmem_phase = ring(step, NUM_TMEM_BUFFERS)
    tlx.barrier_wait(tmem_full_bars[tmem_buf], tmem_phase)
    SUBTILE_N: tl.constexpr = BLOCK_SIZE_N // EPILOGUE_SUBTILE
    for s in tl.static_range(EPILOGUE_SUBTILE):
        acc = tlx.local_load(
            tlx.local_slice(tmem_buffers[tmem_buf], [0, s * SUBTILE_N], [BLOCK_SIZE_M, SUBTILE_N])
        )
        if s == EPILOGUE_SUBTILE - 1:
            # All of the accumulator is in registers or stored: the MMA task may overwrite it.
            tlx.barrier_arrive(tmem_empty_bars[tmem_buf], 1)
        offs_sub = offs_n + s * SUBTILE_N
        if bias_ptr is not None:
            offs_bias = offs_sub + tl.arange(0, SUBTILE_N)
            bias = tl.load(bias_ptr + offs_bias, mask=offs_bias < N, other=0.0)
            acc += bias.to(tl.float32)[None, :]
        buffer_C = buffers_C[s % NUM_STORE_BUFFERS]
        # The store that last used this buffer has read it.
        tlx.async_descriptor_store_wait(NUM_STORE_BUFFERS - 1)
        tlx.local_store(buffer_C, acc.to(tlx.dtype_of(c_desc)))
        tlx.fence("async_shared")
        tlx.async_descriptor_store(c_desc, buffer_C, [offs_m, offs_sub])


@triton.jit
def gemm_tile_pipeline(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    M,
    N,
    K,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
    NUM_TMEM_BUFFERS: tl.constexpr,
    NUM_CLC_STAGES: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    Scheduler: tl.constexpr,
):
    """The three tasks, each walking the tiles that ``Scheduler`` (a constexpr class) gives.

    ``a_desc``, ``b_desc``: TMA descriptors of A (M, K) and B (K, N), or of their transposes where
    A_ROW_MAJOR or B_ROW_MAJOR is false, with boxes of a block. ``c_desc``: of C (M, N), with
    boxes of BLOCK_SIZE_M x BLOCK_SIZE_N / EPILOGUE_SUBTILE. ``bias_ptr``: N elements, or None.
    """
    buffers_A = tlx.local_alloc(a_desc.block_shape, tlx.dtype_of(a_desc), NUM_SMEM_BUFFERS)
    buffers_B = tlx.local_alloc(b_desc.block_shape, tlx.dtype_of(b_desc), NUM_SMEM_BUFFERS)
    LOAD_BYTES: tl.constexpr = (
        (BLOCK_SIZE_M + BLOCK_SIZE_N) * BLOCK_SIZE_K * tlx.size_of(tlx.dtype_of(a_desc))
    )
    NUM_STORE_BUFFERS: tl.constexpr = min(EPILOGUE_SUBTILE, 2)
    buffers_C = tlx.local_alloc(c_desc.block_shape, tlx.dtype_of(c_desc), NUM_STORE_BUFFERS)
    tmem_buffers = tlx.local_alloc(
        (BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32, NUM_TMEM_BUFFERS, tlx.storage_kind.tmem
    )

    smem_full_bars = tlx.alloc_barriers(NUM_SMEM_BUFFERS, arrive_count=1)
    smem_empty_bars = tlx.alloc_barriers(NUM_SMEM_BUFFERS, arrive_count=1)
    tmem_full_bars = tlx.alloc_barriers(NUM_TMEM_BUFFERS, arrive_count=1)
    tmem_empty_bars = tlx.alloc_barriers(NUM_TMEM_BUFFERS, arrive_count=1)

    k_tiles = tl.cdiv(K, BLOCK_SIZE_K)
    num_tiles = tl.cdiv(M, BLOCK_SIZE_M) * tl.cdiv(N, BLOCK_SIZE_N)
    scheduler = Scheduler(num_tiles, NUM_CLC_STAGES, None)

    with tlx.async_tasks():
        with tlx.async_task("default"):
            step = 0
            tile_id = scheduler.first()
            while tile_id != -1:
                stage, phase = ring(step, NUM_CLC_STAGES)
                scheduler.prefetch(stage, phase, EPILOGUE)
                offs_m, offs_n = tile_offsets(
                    tile_id, M, N, BLOCK_SIZE_M, BLOCK_SIZE_N, GROUP_SIZE_M
                )
                _epilogue_tile(
                    step,
                    offs_m,
                    offs_n,
                    N,
                    c_desc,
                    bias_ptr,
                    tmem_buffers,
                    buffers_C,
                    tmem_full_bars,
                    tmem_empty_bars,
                    BLOCK_SIZE_M,
                    BLOCK_SIZE_N,
                    NUM_TMEM_BUFFERS,
                    NUM_STORE_BUFFERS,
                    EPILOGUE_SUBTILE,
                )
                tile_id = scheduler.next(tile_id, stage, phase)
                step += 1
            scheduler.finish(EPILOGUE)
            # Shared memory must outlive the last store's reads of it.
            tlx.async_descriptor_store_wait(0)

        with tlx.async_task(num_warps=1, num_regs=24):
            step = 0
            dots = 0
            tile_id = scheduler.first()
            while tile_id != -1:
                stage, phase = ring(step, NUM_CLC_STAGES)
                scheduler.prefetch(stage, phase, MMA)
                dots = _mma_tile(
                    step,
                    k_tiles,
                    dots,
                    buffers_A,
                    buffers_B,
                    tmem_buffers,
                    smem_full_bars,
                    smem_empty_bars,
                    tmem_full_bars,
                    tmem_empty_bars,
                    NUM_SMEM_BUFFERS,
                    NUM_TMEM_BUFFERS,
                    A_ROW_MAJOR,
                    B_ROW_MAJOR,
                )
                tile_id = scheduler.next(tile_id, stage, phase)
                step += 1
            scheduler.finish(MMA)

        with tlx.async_task(num_warps=1, num_regs=24):
            step = 0
            loads = 0
            tile_id = scheduler.first()
            while tile_id != -1:
                stage, phase = ring(step, NUM_CLC_STAGES)
                scheduler.prefetch(stage, phase, LOAD)
                offs_m, offs_n = tile_offsets(
                    tile_id, M, N, BLOCK_SIZE_M, BLOCK_SIZE_N, GROUP_SIZE_M
                )
                loads = load_tile(
                    offs_m,
                    offs_n,
                    0,
                    k_tiles,
                    loads,
                    a_desc,
                    b_desc,
                    buffers_A,
                    buffers_B,
                    smem_full_bars,
                    smem_empty_bars,
                    BLOCK_SIZE_K,
                    NUM_SMEM_BUFFERS,
                    A_ROW_MAJOR,
                    B_ROW_MAJOR,
                    LOAD_BYTES,
                )
                tile_id = scheduler.next(tile_id, stage, phase)
                step += 1
            scheduler.finish(LOAD)


# One binary for all shapes: no variants for extents of 1 or multiples of 16.
@triton.jit(do_not_specialize=("M", "N", "K"))
def matmul_kernel_tma_ws_blackwell_persistent(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    M,
    N,
    K,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
    NUM_TMEM_BUFFERS: tl.constexpr,
    NUM_CLC_STAGES: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
):
    """Static persistent schedule; grid: at most one CTA per SM."""
    gemm_tile_pipeline(
        a_desc,
        b_desc,
        c_desc,
        bias_ptr,
        M,
        N,
        K,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
        NUM_SMEM_BUFFERS,
        NUM_TMEM_BUFFERS,
        NUM_CLC_STAGES,
        EPILOGUE_SUBTILE,
        A_ROW_MAJOR,
        B_ROW_MAJOR,
        tl.constexpr(StaticPersistentScheduler),
    )


# One binary for all shapes: no variants for extents of 1 or multiples of 16.
@triton.jit(do_not_specialize=("M", "N", "K"))
def matmul_kernel_tma_ws_blackwell_clc(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    M,
    N,
    K,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
    NUM_TMEM_BUFFERS: tl.constexpr,
    NUM_CLC_STAGES: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
):
    """Cluster Launch Control schedule; grid: exactly one CTA per tile."""
    gemm_tile_pipeline(
        a_desc,
        b_desc,
        c_desc,
        bias_ptr,
        M,
        N,
        K,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
        NUM_SMEM_BUFFERS,
        NUM_TMEM_BUFFERS,
        NUM_CLC_STAGES,
        EPILOGUE_SUBTILE,
        A_ROW_MAJOR,
        B_ROW_MAJOR,
        tl.constexpr(ClcScheduler),
    )

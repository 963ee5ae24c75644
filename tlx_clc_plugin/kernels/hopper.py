"""Warp-specialised Hopper GEMM: C = A @ B (+ bias) under any scheduler of :mod:`.schedulers`.

    load (1 warp at work)  --smem ring-->  two groups of four warps: wgmma, then epilogue  --> C

The groups share a tile, each multiplying half of its rows. Tiles from ``num_full_tiles`` on are
cut along K into SPLIT_K work items, whose fp32 partial sums :mod:`.reduce` adds up.
"""

import triton
import triton.language as tl
import triton.language.extra.tlx as tlx
from triton.language.extra import cuda

from .schedulers import LOAD, MMA, DynamicScheduler, StaticPersistentScheduler
from .tiles import load_tile, ring, tile_offsets

_NUM_GROUPS = tl.constexpr(2)


@triton.jit
def _work_item(work_id, num_full_tiles, k_tiles, split_k, SPLIT: tl.constexpr):
    """Tile and range of K blocks of a work item."""
    tile_id, k_begin, k_end = work_id, 0, k_tiles
    if SPLIT:
        if work_id >= num_full_tiles:
            part = work_id - num_full_tiles
            tile_id = num_full_tiles + part // split_k
            part = part % split_k
            k_begin = part * k_tiles // split_k
            k_end = (part + 1) * k_tiles // split_k
    return tile_id, k_begin, k_end


@triton.jit
def _dot(
    acc,
    buf,
    group: tl.constexpr,
    buffers_A,
    buffers_B,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
):
    """Issue one K block of a group's rows."""
    if A_ROW_MAJOR:
        a = tlx.local_slice(buffers_A[buf], [group * GROUP_M, 0], [GROUP_M, BLOCK_SIZE_K])
    else:
        a = tlx.local_trans(
            tlx.local_slice(buffers_A[buf], [0, group * GROUP_M], [BLOCK_SIZE_K, GROUP_M])
        )
    if B_ROW_MAJOR:
        b = buffers_B[buf]
    else:
        b = tlx.local_trans(buffers_B[buf])
    return tlx.async_dot(a, b, acc)


@triton.jit
def _halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Left and right half of a matrix in registers."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def _store_columns(
    acc,
    offs_m,
    offs_n,
    N,
    desc,
    bias_ptr,
    buffers,
    first_buffer: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTS: tl.constexpr,
    NUM_BUFFERS: tl.constexpr,
    PART: tl.constexpr = 0,
):
    """Registers (+ bias in fp32, rounded once) -> smem -> C, in PARTS along the columns.

    The parts take turns at NUM_BUFFERS buffers from ``first_buffer`` on, of which PARTS is a
    multiple: so, from tile to tile, a buffer's last store is NUM_BUFFERS stores ago.
    """
    if PARTS > 1:
        left, right = _halves(acc, ROWS, COLUMNS)
        _store_columns(
            left,
            offs_m,
            offs_n,
            N,
            desc,
            bias_ptr,
            buffers,
            first_buffer,
            ROWS,
            COLUMNS // 2,
            PARTS // 2,
            NUM_BUFFERS,
            PART,
        )
        _store_columns(
            right,
            offs_m,
            offs_n + COLUMNS // 2,
            N,
            desc,
            bias_ptr,
            buffers,
            first_buffer,
            ROWS,
            COLUMNS // 2,
            PARTS // 2,
            NUM_BUFFERS,
            PART + PARTS // 2,
        )
    else:
        if bias_ptr is not None:
            offs_bias = offs_n + tl.arange(0, COLUMNS)
            bias = tl.load(bias_ptr + offs_bias, mask=offs_bias < N, other=0.0)
            acc += bias.to(tl.float32)[None, :]
        buffer = buffers[first_buffer + PART % NUM_BUFFERS]
        tlx.async_descriptor_store_wait(NUM_BUFFERS - 1)
        tlx.local_store(buffer, acc.to(tlx.dtype_of(desc)))
        tlx.fence("async_shared")
        tlx.async_descriptor_store(desc, buffer, [offs_m, offs_n])


@triton.jit
def gemm_tile_pipeline(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    workspace_desc,
    counter_ptr,
    M,
    N,
    K,
    num_full_tiles,
    split_k,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    Scheduler: tl.constexpr,
):
    GROUP_M: tl.constexpr = BLOCK_SIZE_M // _NUM_GROUPS
    SPLIT: tl.constexpr = workspace_desc is not None
    NUM_STORE_BUFFERS: tl.constexpr = min(EPILOGUE_SUBTILE, 2)
    NUM_STORES: tl.constexpr = _NUM_GROUPS * NUM_STORE_BUFFERS
    NUM_STAGES: tl.constexpr = 2
    buffers_A = tlx.local_alloc(a_desc.block_shape, tlx.dtype_of(a_desc), NUM_SMEM_BUFFERS)
    buffers_B = tlx.local_alloc(b_desc.block_shape, tlx.dtype_of(b_desc), NUM_SMEM_BUFFERS)
    LOAD_BYTES: tl.constexpr = (
        (BLOCK_SIZE_M + BLOCK_SIZE_N) * BLOCK_SIZE_K * tlx.size_of(tlx.dtype_of(a_desc))
    )
    if SPLIT:
        # Partial sums leave through the same bytes, half as many columns at a time.
        store_space = tlx.storage_alias_spec(storage=tlx.storage_kind.smem)
        buffers_C = tlx.local_alloc(
            c_desc.block_shape, tlx.dtype_of(c_desc), NUM_STORES, reuse=store_space
        )
        buffers_W = tlx.local_alloc(
            workspace_desc.block_shape, tl.float32, NUM_STORES, reuse=store_space
        )
    else:
        buffers_C = tlx.local_alloc(c_desc.block_shape, tlx.dtype_of(c_desc), NUM_STORES)
    smem_full_bars = tlx.alloc_barriers(NUM_SMEM_BUFFERS, arrive_count=1)
    smem_empty_bars = tlx.alloc_barriers(NUM_SMEM_BUFFERS, arrive_count=_NUM_GROUPS)

    k_tiles = tl.cdiv(K, BLOCK_SIZE_K)
    num_tiles = tl.cdiv(M, BLOCK_SIZE_M) * tl.cdiv(N, BLOCK_SIZE_N)
    num_work = num_full_tiles + (num_tiles - num_full_tiles) * split_k
    scheduler = Scheduler(num_work, NUM_STAGES, counter_ptr)

    with tlx.async_tasks():
        with tlx.async_task("default"):
            if SPLIT:
                # The reduction's CTAs may be placed as these end; they wait for the whole grid.
                cuda.gdc_launch_dependents()
            step = 0
            loads = 0
            work_id = scheduler.first()
            while work_id != -1:
                stage, phase = ring(step, NUM_STAGES)
                scheduler.prefetch(stage, phase, LOAD)
                tile_id, k_begin, k_end = _work_item(
                    work_id, num_full_tiles, k_tiles, split_k, SPLIT
                )
                offs_m, offs_n = tile_offsets(
                    tile_id, M, N, BLOCK_SIZE_M, BLOCK_SIZE_N, GROUP_SIZE_M
                )
                loads = load_tile(
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
                    BLOCK_SIZE_K,
                    NUM_SMEM_BUFFERS,
                    A_ROW_MAJOR,
                    B_ROW_MAJOR,
                    LOAD_BYTES,
                )
                work_id = scheduler.next(work_id, stage, phase)
                step += 1
            scheduler.finish(LOAD)

        with tlx.async_task(num_warps=4, num_regs=240, replicate=_NUM_GROUPS):
            group: tl.constexpr = tlx.async_task_replica_id()
            step = 0
            dots = 0
            work_id = scheduler.first()
            while work_id != -1:
                stage, phase = ring(step, NUM_STAGES)
                scheduler.prefetch(stage, phase, MMA)
                tile_id, k_begin, k_end = _work_item(
                    work_id, num_full_tiles, k_tiles, split_k, SPLIT
                )
                offs_m, offs_n = tile_offsets(
                    tile_id, M, N, BLOCK_SIZE_M, BLOCK_SIZE_N, GROUP_SIZE_M
                )
                acc = tl.zeros((GROUP_M, BLOCK_SIZE_N), dtype=tl.float32)
                for k in range(k_begin, k_end):
                    buf, buf_phase = ring(dots, NUM_SMEM_BUFFERS)
                    tlx.barrier_wait(smem_full_bars[buf], buf_phase)
                    acc = _dot(
                        acc,
                        buf,
                        group,
                        buffers_A,
                        buffers_B,
                        BLOCK_SIZE_K,
                        GROUP_M,
                        A_ROW_MAJOR,
                        B_ROW_MAJOR,
                    )
                    # One wgmma stays in flight; the one before it has read its buffers.
                    acc = tlx.async_dot_wait(1, acc)
                    if k > k_begin:
                        previous, _ = ring(dots - 1, NUM_SMEM_BUFFERS)
                        tlx.barrier_arrive(smem_empty_bars[previous], 1)
                    dots += 1
                acc = tlx.async_dot_wait(0, acc)
                previous, _ = ring(dots - 1, NUM_SMEM_BUFFERS)
                tlx.barrier_arrive(smem_empty_bars[previous], 1)

                offs_group = offs_m + group * GROUP_M
                if SPLIT:
                    partial = work_id >= num_full_tiles
                else:
                    partial: tl.constexpr = False
                if partial:
                    _store_columns(
                        acc,
                        (work_id - num_full_tiles) * BLOCK_SIZE_M + group * GROUP_M,
                        0,
                        N,
                        workspace_desc,
                        None,
                        buffers_W,
                        group * NUM_STORE_BUFFERS,
                        GROUP_M,
                        BLOCK_SIZE_N,
                        2 * EPILOGUE_SUBTILE,
                        NUM_STORE_BUFFERS,
                    )
                else:
                    _store_columns(
                        acc,
                        offs_group,
                        offs_n,
                        N,
                        c_desc,
                        bias_ptr,
                        buffers_C,
                        group * NUM_STORE_BUFFERS,
                        GROUP_M,
                        BLOCK_SIZE_N,
                        EPILOGUE_SUBTILE,
                        NUM_STORE_BUFFERS,
                    )
                work_id = scheduler.next(work_id, stage, phase)
                step += 1
            scheduler.finish(MMA)
            # Shared memory must outlive the last store's reads of it.
            tlx.async_descriptor_store_wait(0)


_RUNTIME = ("M", "N", "K", "num_full_tiles", "split_k")


@triton.jit(do_not_specialize=_RUNTIME)
def matmul_kernel_tma_ws_hopper_persistent(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    workspace_desc,
    counter_ptr,
    M,
    N,
    K,
    num_full_tiles,
    split_k,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
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
        workspace_desc,
        counter_ptr,
        M,
        N,
        K,
        num_full_tiles,
        split_k,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
        NUM_SMEM_BUFFERS,
        EPILOGUE_SUBTILE,
        A_ROW_MAJOR,
        B_ROW_MAJOR,
        tl.constexpr(StaticPersistentScheduler),
    )


@triton.jit(do_not_specialize=_RUNTIME)
def matmul_kernel_tma_ws_hopper_dynamic(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    workspace_desc,
    counter_ptr,
    M,
    N,
    K,
    num_full_tiles,
    split_k,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    NUM_SMEM_BUFFERS: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
):
    """Dynamic persistent schedule (a tile counter); grid: at most one CTA per SM."""
    gemm_tile_pipeline(
        a_desc,
        b_desc,
        c_desc,
        bias_ptr,
        workspace_desc,
        counter_ptr,
        M,
        N,
        K,
        num_full_tiles,
        split_k,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
        NUM_SMEM_BUFFERS,
        EPILOGUE_SUBTILE,
        A_ROW_MAJOR,
        B_ROW_MAJOR,
        tl.constexpr(DynamicScheduler),
    )

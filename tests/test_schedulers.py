"""Schedulers: every tile exactly once, whoever takes it; and a third one from outside."""

from collections import Counter

import pytest
import torch
import triton
import triton.language as tl
from triton.language.core import builtin

import tlx_clc_plugin
from tlx_clc_plugin import GemmConfig
from tlx_clc_plugin.accuracy import check
from tlx_clc_plugin.emulator import EmulatedDevice
from tlx_clc_plugin.kernels import OPTIONS
from tlx_clc_plugin.kernels.blackwell import gemm_tile_pipeline
from tlx_clc_plugin.kernels.schedulers import tile_scheduler
from tlx_clc_plugin.operands import descriptor, inspect_input

CONFIG = GemmConfig(block_size_n=128, num_smem_buffers=3, epilogue_subtile=2, group_size_m=3)


def operands(M=512, N=512, K=256):
    rng = torch.Generator().manual_seed(M + N + K)
    return (torch.randn(shape, generator=rng).half() for shape in ((M, K), (K, N)))


def stores(report):
    """How often each subtile of C was stored, by its (row, column)."""
    return Counter(store.coords[::-1] for cta in report.ctas for store in cta.tma_stores)


def every_subtile_once(M, N, config):
    rows, columns = range(0, M, config.block_size_m), range(0, N, config.subtile_n)
    return Counter((row, column) for row in rows for column in columns)


@pytest.mark.parametrize("sms", [1, 2, 3, 5])
def test_clc_stores_every_tile_once_in_any_order(sms):
    a, b = operands()
    for seed in range(20):
        with EmulatedDevice(sms=sms, policy="random", seed=seed) as device:
            c = tlx_clc_plugin.matmul(a, b, schedule="clc", config=CONFIG)
        (report,) = device.launches
        assert stores(report) == every_subtile_once(512, 512, CONFIG)
        assert check(c, a, b).ok
        worked = [(cta.ctaid, *cta.stolen) for cta in report.ctas]
        assert sorted(tile for tiles in worked for tile in tiles) == [(i, 0, 0) for i in range(16)]
        if sms == 1:
            assert [len(cta.stolen) for cta in report.ctas] == [15]


@pytest.mark.parametrize("sms", [1, 4, 7])
@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
def test_persistent_deals_tiles_round_robin(sms, policy):
    a, b = operands()
    with EmulatedDevice(sms=sms, policy=policy, seed=sms) as device:
        tlx_clc_plugin.matmul(a, b, schedule="persistent", config=CONFIG)
    (report,) = device.launches
    assert stores(report) == every_subtile_once(512, 512, CONFIG)
    assert len(report.ctas) == sms
    for cta in report.ctas:
        assert cta.stolen == ()
        tiles = {(y // 128, x // 128) for x, y in (store.coords for store in cta.tma_stores)}
        assert len(tiles) == len(range(cta.ctaid[0], 16, sms))


@tile_scheduler
class ReversedScheduler:
    """A third scheduler, as a user would write one: CTAs take tiles from the last to the first."""

    num_tiles: tl.tensor

    @builtin
    def __init__(self, num_tiles, NUM_STAGES, counter_ptr, _semantic=None):
        self.num_tiles = num_tiles

    @builtin
    def first(self, _semantic=None):
        last = self.num_tiles.__sub__(1, _semantic=_semantic)
        pid = tl.program_id(0, _semantic=_semantic)
        return self._valid(last.__sub__(pid, _semantic=_semantic), _semantic=_semantic)

    @builtin
    def prefetch(self, stage, phase, role, _semantic=None):
        pass

    @builtin
    def next(self, tile_id, stage, phase, _semantic=None):
        ctas = tl.num_programs(0, _semantic=_semantic)
        return self._valid(tile_id.__sub__(ctas, _semantic=_semantic), _semantic=_semantic)

    @builtin
    def finish(self, role, _semantic=None):
        pass

    @builtin
    def _valid(self, tile_id, _semantic=None):
        return tl.maximum(tile_id, -1, _semantic=_semantic)


@triton.jit
def matmul_kernel_reversed(
    a_desc,
    b_desc,
    c_desc,
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
):
    gemm_tile_pipeline(
        a_desc,
        b_desc,
        c_desc,
        None,
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
        True,
        True,
        tl.constexpr(ReversedScheduler),
    )


def test_a_third_scheduler_needs_no_change_of_the_pipeline():
    a, b = operands()
    c = torch.empty(512, 512, dtype=torch.float16)
    boxes = ((128, 64), (64, 128), (128, 64))
    descriptors = [
        descriptor(inspect_input("", x), x, box) for x, box in zip((a, b, c), boxes, strict=True)
    ]
    with EmulatedDevice(sms=3) as device:
        kernel = matmul_kernel_reversed
        kernel[(3,)](*descriptors, 512, 512, 256, **CONFIG.meta(kernel), **OPTIONS)
    (report,) = device.launches
    assert stores(report) == every_subtile_once(512, 512, CONFIG)
    assert check(c, a, b).ok
    # CTA 0 starts where the others' order ends.
    first = report.ctas[0].tma_stores[0].coords
    assert first == (384, 384)

"""The Hopper kernels' PTX, run in the emulator: numbers, and each tile's one writer."""

import random
from collections import Counter

import pytest
import torch

import tlx_clc_plugin
from tlx_clc_plugin import GemmConfig
from tlx_clc_plugin.accuracy import check
from tlx_clc_plugin.config import ARCH_SCHEDULES
from tlx_clc_plugin.emulator import EmulatedDevice

SCHEDULES = ARCH_SCHEDULES["hopper"]
CONFIGS = [
    GemmConfig(block_size_n=64, block_size_k=32, num_smem_buffers=3, epilogue_subtile=2),
    GemmConfig(block_size_n=128, num_smem_buffers=2, epilogue_subtile=1, group_size_m=2),
    GemmConfig(block_size_m=256, block_size_n=64, num_smem_buffers=2, epilogue_subtile=2),
    GemmConfig(block_size_n=64, num_smem_buffers=2, epilogue_subtile=4, split_k=3),
]


def operand(rows, columns, row_major, dtype, generator):
    shape = (rows, columns) if row_major else (columns, rows)
    x = torch.randn(shape, generator=generator).to(dtype)
    return x if row_major else x.t()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_right_numbers_whatever_the_order(schedule, policy, config):
    rng = random.Random(f"{schedule} {policy} {config}")
    generator = torch.Generator().manual_seed(rng.randrange(2**32))
    dtype = rng.choice((torch.float16, torch.bfloat16))
    M, N, K = rng.randint(129, 400), rng.randint(65, 300), rng.randint(1, 300)
    a = operand(M, K, rng.random() < 0.5, dtype, generator)
    b = operand(K, N, rng.random() < 0.5, dtype, generator)
    bias = torch.randn(N, generator=generator).to(dtype) if rng.random() < 0.5 else None
    with EmulatedDevice(arch="sm_90a", sms=rng.randint(1, 5), policy=policy, seed=1) as device:
        plan = tlx_clc_plugin.plan(a, b, bias=bias, schedule=schedule, config=config)
        c = tlx_clc_plugin.matmul(a, b, bias=bias, schedule=schedule, config=config)
    assert check(c, a, b, bias).ok, (M, N, K, bias is None, check(c, a, b, bias))
    assert plan.arch == "hopper" and device.launches[0].grid == plan.grid
    if config.split_k == 1:
        # A warp group stores half of a tile's rows, a subtile at a time, in boxes of 128 bytes.
        rows, columns = config.store_rows("hopper"), min(config.subtile_n, 64)
        stores = Counter(s.coords[::-1] for cta in device.launches[0].ctas for s in cta.tma_stores)
        tile_rows, tile_columns = -(-M // config.block_size_m), -(-N // config.block_size_n)
        assert stores == Counter(
            (y * rows, x * columns)
            for y in range(2 * tile_rows)
            for x in range(config.block_size_n // columns * tile_columns)
        )


def test_blackwells_scheduler_is_refused():
    x = torch.ones(16, 16, dtype=torch.float16)
    with EmulatedDevice(arch="sm_90a"), pytest.raises(ValueError, match="dynamic on Hopper, got"):
        tlx_clc_plugin.matmul(x, x, schedule="clc")

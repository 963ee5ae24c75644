"""A config for a problem without a tuning run, from a model of one SM's tensor core."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path

from .config import MAX_SMEM_BYTES, GemmConfig
from .planning import count_tiles

_BLOCK_SIZE_M = 128
_BLOCK_SIZES_N = (256, 128, 64, 32)
_BLOCK_SIZE_K = 64
_MAX_SMEM_BUFFERS = 8
# Filling and draining the pipeline once per CTA, in the model's cycles: about two trips to DRAM.
_FILL_CYCLES = 2000


def select_config(
    M: int, N: int, K: int, num_sms: int, *, schedule: str, bias: bool, arch: str = "blackwell"
) -> GemmConfig:
    """The config that the model of ``arch`` finds fastest for M x N x K on ``num_sms`` SMs.

    Always valid for ``schedule`` and ``bias``. The Blackwell model is of cycles, and unmeasured
    (:func:`modelled_cycles`); the Hopper model is of microseconds, fitted to an H200
    (:func:`modelled_microseconds`).
    """
    if arch == "hopper":
        return min(_hopper_configs(M, N, K, num_sms))[2]
    block_size_n = min(_BLOCK_SIZES_N, key=lambda n: modelled_cycles(M, N, K, num_sms, n))
    return _blackwell_config(block_size_n, schedule, bias)


def ranked_configs(
    M: int, N: int, K: int, num_sms: int, *, schedule: str, bias: bool, arch: str = "blackwell"
) -> list[GemmConfig]:
    """All configs that :func:`select_config` chooses among, its choice first, by modelled time."""
    if arch == "hopper":
        modelled = sorted(_hopper_configs(M, N, K, num_sms))
        return [config for time, _, config in modelled if time < math.inf]
    sizes = sorted(_BLOCK_SIZES_N, key=lambda n: modelled_cycles(M, N, K, num_sms, n))
    return [_blackwell_config(block_size_n, schedule, bias) for block_size_n in sizes]


def _blackwell_config(block_size_n: int, schedule: str, bias: bool) -> GemmConfig:
    """The tile with as many smem buffers as fit."""
    # The epilogue hands over 64 columns at a time: one 128-byte swizzle row of 16-bit elements.
    subtile = max(1, block_size_n // 64)
    for num_smem_buffers in range(_MAX_SMEM_BUFFERS, 0, -1):
        config = GemmConfig(
            block_size_m=_BLOCK_SIZE_M,
            block_size_n=block_size_n,
            block_size_k=_BLOCK_SIZE_K,
            num_smem_buffers=num_smem_buffers,
            epilogue_subtile=subtile,
        )
        if config.smem_bytes(schedule, bias=bias) <= MAX_SMEM_BYTES:
            return config
    raise AssertionError("unreachable: one buffer of the largest tile fits")


def modelled_cycles(M: int, N: int, K: int, num_sms: int, block_size_n: int) -> float:
    """Modelled SM cycles until the last tile of 128 x ``block_size_n`` is stored.

    Each K step of 16 costs the larger of two times: the multiply, at 8192 FLOP a cycle
    (2250 TFLOP/s over 148 SMs at 1.86 GHz, B200), and moving both operands through shared
    memory, written by TMA and read by the tensor core, at 128 bytes a cycle. The second makes
    narrow tiles expensive. The busiest SM runs ceil(tiles / SMs) tiles; its last epilogue, at
    four cycles a column, is not hidden.
    """
    tiles = -(-M // _BLOCK_SIZE_M) * -(-N // block_size_n)
    rounds = -(-tiles // num_sms)
    multiply = 2 * _BLOCK_SIZE_M * block_size_n * 16 / 8192
    operands = 2 * (_BLOCK_SIZE_M + block_size_n) * 16 * 2 / 128
    steps = -(-K // _BLOCK_SIZE_K) * (_BLOCK_SIZE_K // 16)
    return rounds * steps * max(multiply, operands) + block_size_n * 4 + _FILL_CYCLES


# Tiles that the Hopper heuristic chooses among; hopper_model.json has their times in this order.
HOPPER_CONFIGS = (
    GemmConfig(128, 256, num_smem_buffers=4, epilogue_subtile=4),
    GemmConfig(256, 128, num_smem_buffers=4, epilogue_subtile=4),
    GemmConfig(128, 128, num_smem_buffers=5, epilogue_subtile=2),
    GemmConfig(128, 64, num_smem_buffers=8, epilogue_subtile=1),
    GemmConfig(128, 32, num_smem_buffers=8, epilogue_subtile=1),
)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@functools.cache
def hopper_model() -> dict:
    """Constants of :func:`modelled_microseconds`, as ci/hopper-model fitted them on an H200."""
    return json.loads(Path(__file__).with_name("hopper_model.json").read_text())


def _hopper_configs(
    M: int, N: int, K: int, num_sms: int
) -> list[tuple[float, tuple[int, int], GemmConfig]]:
    """Modelled microseconds, tile and split, which break ties, and config."""
    candidates = []
    for index, config in enumerate(HOPPER_CONFIGS):
        for split_k in _SPLITS:
            candidate = dataclasses.replace(config, split_k=split_k)
            modelled = modelled_microseconds(M, N, K, num_sms, index, candidate)
            candidates.append((modelled, (index, split_k), candidate))
    return candidates


def modelled_microseconds(
    M: int, N: int, K: int, num_sms: int, index: int, config: GemmConfig
) -> float:
    """Modelled GPU time of tile ``index`` of :data:`HOPPER_CONFIGS` with ``config``'s split_k.

    Rounds of tiles, each with an edge and its K blocks; then the last round, perhaps in parts,
    whose partial sums are written, read and added up. Infinite for a split_k that makes no sense.
    """
    model = hopper_model()
    tile = model["tiles"][index]
    tiles, k_tiles = count_tiles(M, N, config), -(-K // config.block_size_k)
    whole_us = tile["edge_us"] + k_tiles * tile["block_us"]
    if config.split_k == 1:
        return tile["launch_us"] + -(-tiles // num_sms) * whole_us
    rest = tiles % num_sms
    if rest == 0 or rest * config.split_k > num_sms or k_tiles < 2 * config.split_k:
        return math.inf
    part_us = tile["edge_us"] + -(-k_tiles // config.split_k) * tile["block_us"]
    moved = 8 * rest * config.split_k * config.block_size_m * config.block_size_n
    reduce_us = model["reduce_us"] + moved / model["reduce_bytes_per_us"]
    return tile["launch_us"] + tiles // num_sms * whole_us + part_us + reduce_us

"""A config for a problem without a tuning run, from a model of one SM's tensor core."""

from __future__ import annotations

from .config import MAX_SMEM_BYTES, GemmConfig

_BLOCK_SIZE_M = 128
_BLOCK_SIZE_K = 64
_MAX_SMEM_BUFFERS = 8
# Filling and draining the pipeline once per CTA, in the model's cycles: about two trips to DRAM.
_FILL_CYCLES = 2000


def select_config(M: int, N: int, K: int, num_sms: int, *, schedule: str, bias: bool) -> GemmConfig:
    """The config with the fewest modelled cycles for an M x N x K product on ``num_sms`` SMs.

    Always valid for ``schedule`` and ``bias``. Nothing is measured: see :func:`modelled_cycles`.
    """
    block_size_n = min(
        (256, 128, 64, 32), key=lambda block_n: modelled_cycles(M, N, K, num_sms, block_n)
    )
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

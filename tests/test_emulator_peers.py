"""fbtriton's own GEMM tutorials, unmodified: other people's PTX, against float64."""

from collections import Counter

import pytest
import torch
from differential_run import few_sms, tutorial_module

from tlx_clc_plugin.emulator import EmulatedDevice, ProtocolError

CLC = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
CLC |= {"NUM_SMEM_BUFFERS": 2, "NUM_TMEM_BUFFERS": 2, "EPILOGUE_SUBTILE": True}
WS = CLC | {"EPILOGUE_SUBTILE": 1, "NUM_MMA_GROUPS": 1, "NUM_CTAS": 1, "SPLIT_K": 1}
WS |= {"INTERLEAVE_EPILOGUE": 0}
PAIR = {"NUM_CTAS": 2, "ctas_per_cga": (2, 1, 1)}
GROUPS = {"NUM_MMA_GROUPS": 2, "BLOCK_SIZE_M": 256, "EPILOGUE_SUBTILE": 4}
PIPELINED = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
PIPELINED |= {"NUM_STAGES": 3}
HOPPER = {"BM": 128, "BN": 128, "BK": 64, "GROUP_SIZE_M": 8, "NUM_STAGES": 2}
HOPPER |= {"NUM_MMA_WARPS": 8, "NUM_MMA_GROUPS": 2, "EPILOGUE_SUBTILE": True, "NUM_CTAS": 1}

WARP_BARRIERS, INTERLEAVED = {"USE_WARP_BARRIER": True}, GROUPS | {"INTERLEAVE_EPILOGUE": 1}

# Tutorial, config, shape, layout
PEERS = {
    "clc": ("blackwell_gemm_clc", CLC, (300, 200, 200), "nn"),
    "clc, warp barriers": ("blackwell_gemm_clc", CLC | WARP_BARRIERS, (300, 200, 200), "nn"),
    "ws": ("blackwell_gemm_ws", WS, (300, 200, 200), "nn"),
    "ws, column-major": ("blackwell_gemm_ws", WS, (304, 200, 200), "tt"),
    "ws, split-K": ("blackwell_gemm_ws", WS | {"SPLIT_K": 2}, (256, 200, 200), "nn"),
    "ws, warp barriers": ("blackwell_gemm_ws", WS | WARP_BARRIERS, (300, 200, 200), "nn"),
    "ws, two groups": ("blackwell_gemm_ws", WS | GROUPS, (300, 200, 200), "nn"),
    "ws, interleaved": ("blackwell_gemm_ws", WS | INTERLEAVED, (300, 200, 200), "nn"),
    "ws, 2 CTAs": ("blackwell_gemm_ws", WS | PAIR, (600, 200, 200), "nn"),
    "ws, 2 CTAs, column-major": ("blackwell_gemm_ws", WS | PAIR, (304, 200, 200), "tt"),
    "ws, 2 CTAs, groups": ("blackwell_gemm_ws", WS | PAIR | GROUPS, (520, 200, 200), "nn"),
    "2cta": ("blackwell_gemm_2cta", None, (512, 256, 256), "nn"),
    "hopper pipelined": ("hopper_gemm_pipelined", PIPELINED, (144, 272, 208), "nn"),
    "hopper ws": ("hopper_gemm_ws", HOPPER, (264, 136, 200), "nn"),
    "hopper ws, column-major": ("hopper_gemm_ws", HOPPER, (264, 136, 200), "tt"),
    "hopper ws, 2 CTAs": ("hopper_gemm_ws", HOPPER | PAIR, (512, 256, 200), "nn"),
    "hopper ws, 2 CTAs, column-major": ("hopper_gemm_ws", HOPPER | PAIR, (512, 256, 200), "tt"),
}


def peer(tutorial, config, shape, layout, *, dtype=torch.float16, policy="random", seed=0):
    """The product by a tutorial, and its operands."""
    m, n, k = shape
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn((m, k), generator=generator).to(dtype)
    b = torch.randn((k, n), generator=generator).to(dtype)
    if layout == "tt":
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    arch = "sm_90a" if tutorial.startswith("hopper") else "sm_100a"
    sms = 8 if config is None else 4  # gemm_2cta has clusters of eight
    with EmulatedDevice(arch=arch, sms=sms, policy=policy, seed=seed), few_sms(sms):
        c = tutorial_module(tutorial).matmul(a, b, config=config and dict(config))
    return c, a, b


def worst(c, a, b, roundings):
    """The largest share of the allowed error: roundings to the output's type, and fp32 sums."""
    a, b = a.double(), b.double()
    exact, magnitude = a @ b, a.abs() @ b.abs()
    # A partial sum can be as large as the sum of magnitudes, the result itself is rounded once.
    size = exact.abs() if roundings == 1 else magnitude
    allowed = roundings * 2.0**-11 * size + 2.0**-24 * (a.shape[1] + 2) * magnitude + 1e-7
    assert not c.isnan().any()
    return ((c.double() - exact).abs() / allowed).max().item()


@pytest.mark.parametrize("name", PEERS)
def test_peer(name):
    tutorial, config, shape, layout = PEERS[name]
    split = (config or {}).get("SPLIT_K", 1)
    for policy in ("eager", "lazy", "random"):
        c, a, b = peer(tutorial, config, shape, layout, policy=policy)
        assert worst(c, a, b, 1 if split == 1 else 1 + split) <= 1.01, policy


def test_fault_of_the_pipelined_tutorial():
    """It does not wait until its last TMA store has read shared memory before it exits."""
    arguments = "blackwell_gemm_pipelined", PIPELINED, (256, 256, 192), "nn"
    c, a, b = peer(*arguments, policy="eager")
    assert worst(c, a, b, 1) <= 1.01
    with pytest.raises(ProtocolError, match="exited before its bulk copies had read"):
        peer(*arguments, policy="lazy")


def test_fault_of_split_k_with_ragged_rows():
    """Each split has M rows of the workspace: the last tile of one reaches into the next one's."""
    config, sms = WS | {"SPLIT_K": 2}, 4
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=generator).half() for size in ((300, 200), (200, 64)))
    with EmulatedDevice(sms=sms) as device, few_sms(sms):
        tutorial_module("blackwell_gemm_ws").matmul(a, b, config=config)
    stores = [store for cta in device.launches[0].ctas for store in cta.tma_stores]
    written = Counter(
        row for store in stores for row in range(store.coords[1], store.coords[1] + store.box[1])
    )
    assert {row for row, count in written.items() if count > 1} == set(range(300, 384))

"""matmul and plan: numbers against float64, copies, and what bad input is told."""

import itertools

import pytest
import torch

import tlx_clc_plugin
from tlx_clc_plugin import GemmConfig, gemm
from tlx_clc_plugin.accuracy import check
from tlx_clc_plugin.config import ARCH_SCHEDULES
from tlx_clc_plugin.emulator import EmulatedDevice

SMALL = GemmConfig(
    block_size_n=64, block_size_k=32, num_smem_buffers=3, epilogue_subtile=2, group_size_m=2
)


def randn(*shape, dtype=torch.float16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operand(rows, columns, row_major, dtype, seed):
    x = randn(rows, columns, dtype=dtype, seed=seed)
    return x if row_major else x.t().contiguous().t()


def assert_accurate(actual, a, b, bias=None):
    result = check(actual, a, b, bias)
    assert result.ok, result


@pytest.fixture
def device():
    with EmulatedDevice(sms=3) as device:
        yield device


@pytest.mark.parametrize("schedule", ARCH_SCHEDULES["blackwell"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("a_row", "b_row"), list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("with_bias", [False, True])
def test_layouts_dtypes_and_bias(device, schedule, dtype, a_row, b_row, with_bias):
    a = operand(264, 96, a_row, dtype, 1)
    b = operand(96, 136, b_row, dtype, 2)
    bias = randn(136, dtype=dtype, seed=3) if with_bias else None
    kept = [x.clone() for x in (a, b) if x is not None]
    launch = tlx_clc_plugin.plan(a, b, bias=bias, schedule=schedule, config=SMALL)
    assert launch.copies == ()
    c = tlx_clc_plugin.matmul(a, b, bias=bias, schedule=schedule, config=SMALL)
    assert c.dtype == dtype and c.is_contiguous()
    assert_accurate(c, a, b, bias)
    assert all(torch.equal(x, y) for x, y in zip((a, b), kept, strict=True))
    assert device.launches[-1].kernel == f"matmul_kernel_tma_ws_blackwell_{schedule}"
    assert device.launches[-1].grid == launch.grid


@pytest.mark.parametrize("schedule", ARCH_SCHEDULES["blackwell"])
@pytest.mark.parametrize(
    "config",
    [
        GemmConfig(block_size_n=128, num_smem_buffers=2, epilogue_subtile=1),
        GemmConfig(block_size_n=128, num_smem_buffers=3, epilogue_subtile=2, num_clc_stages=2),
        GemmConfig(block_size_n=256, num_smem_buffers=3, epilogue_subtile=4, num_clc_stages=3),
        GemmConfig(block_size_n=256, num_smem_buffers=3, epilogue_subtile=8, num_tmem_buffers=1),
        GemmConfig(block_size_n=32, block_size_k=16, num_smem_buffers=1, epilogue_subtile=4),
        GemmConfig(block_size_n=64, block_size_k=128, num_tmem_buffers=5, epilogue_subtile=1),
    ],
    ids=lambda c: f"{c.block_size_n}x{c.block_size_k}e{c.epilogue_subtile}",
)
def test_every_subtile_ring_depth_and_block(device, schedule, config):
    a, b = randn(300, 200, seed=4), operand(200, 328, False, torch.float16, 5)
    bias = randn(328, seed=6)
    c = tlx_clc_plugin.matmul(a, b, bias=bias, schedule=schedule, config=config)
    assert_accurate(c, a, b, bias)


@pytest.mark.parametrize("schedule", ARCH_SCHEDULES["blackwell"])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (1, 8, 16), (129, 257, 8), (127, 65, 33), (5, 300, 1), (200, 1, 70), (64, 64, 130)],
    ids=lambda s: "x".join(map(str, s)),
)
def test_any_extents(device, schedule, shape):
    M, N, K = shape
    a, b, bias = randn(M, K, seed=M), randn(K, N, seed=N), randn(N, seed=K)
    c = tlx_clc_plugin.matmul(a, b, bias=bias, schedule=schedule)
    assert c.shape == (M, N) and c.is_contiguous()
    assert_accurate(c, a, b, bias)


VIEWS = {
    "row gaps": (lambda: randn(140, 128)[:, :72], ()),
    "offset": (lambda: randn(150, 128)[10:, 16:88], ()),
    "odd offset": (lambda: randn(140, 128)[:, 3:75], ("a",)),
    "odd pitch": (lambda: randn(140, 73)[:, :72], ("a",)),
    "transposed odd pitch": (lambda: randn(72, 141).t()[:140], ("a",)),
    "strided": (lambda: randn(280, 144)[::2, ::2], ("a",)),
    "broadcast rows": (lambda: randn(72).expand(140, 72), ("a",)),
    "broadcast columns": (lambda: randn(140, 1).expand(140, 72), ("a",)),
    "one element": (lambda: randn(1, 1).expand(140, 72), ("a",)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_used_in_place_or_copied_as_planned(device, view):
    make, copies = VIEWS[view]
    a, b = make(), randn(72, 64, seed=1)
    launch = tlx_clc_plugin.plan(a, b, config=SMALL)
    assert launch.copies == copies
    assert len([r for r in launch.reasons if r.startswith("copy of a: ")]) == len(copies)
    assert_accurate(tlx_clc_plugin.matmul(a, b, config=SMALL), a, b)


@pytest.mark.parametrize("name", ["a", "b", "bias", "out"])
def test_negative_views_keep_their_sign(device, name):
    given = {"a": randn(40, 32), "b": randn(32, 48, seed=1), "bias": randn(48, seed=2)}
    given["out"] = torch.zeros(40, 48).half()
    given[name] = torch._neg_view(given[name])
    a, b, bias, out = given.values()
    assert tlx_clc_plugin.plan(a, b, bias=bias, out=out).copies == (name,)
    c = tlx_clc_plugin.matmul(a, b, bias=bias, out=out, config=SMALL)
    assert_accurate(*(x.resolve_neg() for x in (c, a, b, bias)))


def test_strided_bias_is_copied(device):
    a, b, bias = randn(130, 40), randn(40, 72, seed=1), randn(144, seed=2)[::2]
    assert tlx_clc_plugin.plan(a, b, bias=bias).copies == ("bias",)
    assert_accurate(tlx_clc_plugin.matmul(a, b, bias=bias, config=SMALL), a, b, bias)
    one = randn(1, seed=3).expand(72)
    assert_accurate(tlx_clc_plugin.matmul(a, b, bias=one, config=SMALL), a, b, one)


@pytest.mark.parametrize(
    ("make", "copies"),
    [
        (lambda: torch.full((130, 72), 7.0).half(), ()),
        (lambda: torch.full((130, 96), 7.0).half()[:, 8:80], ()),
        (lambda: torch.full((130, 96), 7.0).half()[:, 1:73], ("out",)),
        (lambda: torch.full((72, 130), 7.0).half().t(), ("out",)),
    ],
)
def test_out_is_filled_in_place(device, make, copies):
    a, b, out = randn(130, 40), randn(40, 72, seed=1), make()
    assert tlx_clc_plugin.plan(a, b, out=out).copies == copies
    assert tlx_clc_plugin.matmul(a, b, out=out, config=SMALL) is out
    assert_accurate(out, a, b)


def test_elements_around_out_are_untouched(device):
    buffer = torch.full((140, 96), 7.0).half()
    out = buffer[4:134, 8:79]
    tlx_clc_plugin.matmul(randn(130, 40), randn(40, 71, seed=1), out=out, config=SMALL)
    buffer[4:134, 8:79] = 7.0
    assert torch.equal(buffer, torch.full_like(buffer, 7.0))


@pytest.mark.parametrize("shape", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_empty_products_are_torchs(device, shape, with_bias):
    M, N, K = shape
    a, b, bias = randn(M, K), randn(K, N), randn(N, seed=1) if with_bias else None
    expected = torch.matmul(a, b) + (0 if bias is None else bias)
    launch = tlx_clc_plugin.plan(a, b, bias=bias)
    assert launch.grid == (0, 1, 1) and launch.copies == ()
    assert torch.equal(tlx_clc_plugin.matmul(a, b, bias=bias), expected)
    out = torch.full((M, N), 7.0).half()
    assert torch.equal(tlx_clc_plugin.matmul(a, b, bias=bias, out=out), expected)
    assert device.launches == []


def test_plan_describes_the_launch():
    a, b = randn(300, 256), randn(256, 520, seed=1)
    clc = tlx_clc_plugin.plan(a, b, schedule="clc", config=SMALL, num_sms=4)
    persistent = tlx_clc_plugin.plan(a, b, schedule="persistent", config=SMALL, num_sms=4)
    assert clc.tiles == persistent.tiles == 3 * 9
    assert clc.grid == (27, 1, 1) and persistent.grid == (4, 1, 1)
    assert tlx_clc_plugin.plan(a, b, num_sms=4).config != SMALL
    unplanned = tlx_clc_plugin.plan(a, b)
    assert unplanned.num_sms == 148 and "planned for a B200 (148 SMs)" in unplanned.reasons[0]
    text = str(tlx_clc_plugin.plan(a[:, 1:], b[1:], num_sms=4))
    assert "copies: a" in text and "not on a 16-byte boundary" in text and "300x520x255" in text


BAD = {
    "list": (dict(a=[[1.0]]), TypeError, "a must be a torch.Tensor, got list"),
    "sparse": (dict(b=randn(16, 8).to_sparse()), TypeError, "b must be a dense tensor"),
    "1-D": (dict(a=randn(16)), ValueError, r"a must be 2-D, got shape \(16,\)"),
    "3-D": (dict(b=randn(2, 16, 8)), ValueError, r"b must be 2-D, got shape \(2, 16, 8\)"),
    "K": (dict(b=randn(24, 8)), ValueError, r"agree in K, got a of shape \(8, 16\) and b .*24, 8"),
    "float32": (dict(a=torch.randn(8, 16)), TypeError, "a must be float16 or bfloat16, got .*32"),
    "mixed": (dict(b=randn(16, 8).bfloat16()), TypeError, "b must have the dtype of a, .*bfloat16"),
    "device": (dict(b=randn(16, 8).to("meta")), ValueError, "b must be on the device of a.*meta"),
    "bias length": (dict(bias=randn(7)), ValueError, "bias must have length N = 8, got 7"),
    "bias rank": (dict(bias=randn(1, 8)), ValueError, r"bias must be 1-D, got shape \(1, 8\)"),
    "bias dtype": (dict(bias=torch.randn(8)), TypeError, "bias must have the dtype of a"),
    "schedule": (dict(schedule="warp"), ValueError, "persistent, clc, dynamic, got 'warp'"),
    "config": (dict(config=GemmConfig(num_tmem_buffers=9)), ValueError, "9 \\* 256 = 2304"),
    "config type": (
        dict(config={"block_size_m": 128}),
        TypeError,
        "must be a GemmConfig, got dict",
    ),
    "out shape": (
        dict(out=randn(8, 16)),
        ValueError,
        r"out must have shape \(8, 8\), got \(8, 16\)",
    ),
    "out dtype": (dict(out=torch.empty(8, 8)), TypeError, "out must have the dtype of a"),
    "out sliding": (
        dict(out=randn(100).as_strided((8, 8), (4, 1))),
        ValueError,
        "between elements",
    ),
    "tiles": (
        dict(a=randn(1, 1).expand(2**31 - 600, 16), b=randn(1, 1).expand(16, 2**31 - 600)),
        ValueError,
        "at most 2147483647 tiles",
    ),
    "out broadcast": (dict(out=randn(8).expand(8, 8)), ValueError, "between elements.*strides"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(device, case):
    change, error, words = BAD[case]
    given = {"a": randn(8, 16), "b": randn(16, 8), **change}
    a, b = given.pop("a"), given.pop("b")
    for call in (tlx_clc_plugin.matmul, tlx_clc_plugin.plan):
        with pytest.raises(error, match=words):
            call(a, b, **given)
    assert device.launches == []


def test_out_must_not_overlap_an_input(device):
    buffer = randn(16, 32)
    a, out = buffer[:, :16], buffer[:, 8:24]
    with pytest.raises(ValueError, match="out must not overlap a"):
        tlx_clc_plugin.matmul(a, randn(16, 16, seed=1), out=out)
    row = randn(16, 16)
    with pytest.raises(ValueError, match="out must not overlap bias"):
        tlx_clc_plugin.matmul(randn(16, 16), randn(16, 16), bias=row[3], out=row)
    a, out = buffer[:, :16], buffer[:, 16:]
    tlx_clc_plugin.matmul(a, randn(16, 16, seed=1), out=out)


def test_cpu_tensors_need_an_emulated_device():
    with pytest.raises(RuntimeError, match="a is a CPU tensor: .*EmulatedDevice"):
        tlx_clc_plugin.matmul(randn(8, 16), randn(16, 8))


@pytest.mark.parametrize(("name", "sm"), [("NVIDIA A100", (8, 0)), ("NVIDIA RTX 5090", (12, 0))])
def test_gpu_of_another_kind_is_refused(monkeypatch, name, sm):
    monkeypatch.setattr(gemm, "_cuda_properties", lambda index: (name, *sm, 132))
    with pytest.raises(RuntimeError, match=rf"need a Hopper .*Blackwell.* is {name} \(sm_{sm[0]}"):
        gemm._check_device(torch.device("cuda", 0))


def test_a_schedule_of_another_architecture_is_refused(device):
    with pytest.raises(ValueError, match="one of persistent, clc on Blackwell, got 'dynamic'"):
        tlx_clc_plugin.matmul(randn(8, 16), randn(16, 8), schedule="dynamic")


def test_gradients_are_not_tracked(device):
    a, b = randn(8, 16).requires_grad_(), randn(16, 8, seed=1).requires_grad_()
    c = tlx_clc_plugin.matmul(a, b)
    assert not c.requires_grad
    assert_accurate(c, a.detach(), b.detach())

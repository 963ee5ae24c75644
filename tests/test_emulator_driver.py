"""The emulated device under Triton: whole kernels against float64."""

from __future__ import annotations

import collections
import re

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tlx_clc_plugin import GemmConfig, matmul
from tlx_clc_plugin.emulator import Deadlock, EmulatedDevice, MemoryFault, run_ptx
from tlx_clc_plugin.emulator.memory import GlobalMemory
from tlx_clc_plugin.emulator.swizzle import Swizzle
from tlx_clc_plugin.emulator.tensormap import TensorMap
from tlx_clc_plugin.kernels import compile_kernel


@triton.jit
def axpy_kernel(x_ptr, y_ptr, out_ptr, alpha, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets * stride, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)


@triton.jit
def stock_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Pointer arithmetic, masked loads and tl.dot: cp.async and tcgen05, no TMA."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m[:, None] % M) * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + (offs_n[None, :] % N) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + stride_cm * offs_m[:, None] + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def transpose_kernel(in_desc, out_desc, BLOCK: tl.constexpr):
    tile = in_desc.load([tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK])
    out_desc.store([tl.program_id(1) * BLOCK, tl.program_id(0) * BLOCK], tile.trans())


def stock_matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    stock_matmul_kernel[grid](
        a, b, out, M, N, K, *a.stride(), *b.stride(), out.stride(0),
        BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_stages=3, num_warps=4,
    )  # fmt: skip


def operands(shape, dtype, layout, seed):
    """a and b of small values; a column-major operand is the transpose of a row-major one."""
    generator = torch.Generator().manual_seed(seed)
    M, N, K = shape

    def matrix(rows, columns, row_major):
        size = (rows, columns) if row_major else (columns, rows)
        x = torch.randn(size, generator=generator).to(dtype)
        return x if row_major else x.t()

    return matrix(M, K, layout[0] == "n"), matrix(K, N, layout[1] == "n")


def assert_product(out, a, b, bias=None):
    """|error| <= rounding of the result + fp32 accumulation, in units of |A||B| (Higham, 2002)."""
    exact = a.double() @ b.double() + (0 if bias is None else bias.double())
    magnitude = a.double().abs() @ b.double().abs() + (0 if bias is None else bias.double().abs())
    unit = torch.finfo(out.dtype).eps / 2
    bound = unit * exact.abs() * 1.01 + 2.0**-24 * (a.shape[1] + 2) * magnitude + 1e-7
    assert not out.isnan().any()
    assert ((out.double() - exact).abs() <= bound).all()


def test_architectures():
    with EmulatedDevice(arch="sm_90a"), EmulatedDevice():
        target = triton.runtime.driver.active.get_current_target()
        assert target.arch == 100
    with EmulatedDevice(), EmulatedDevice(arch="sm_90a"):
        assert triton.runtime.driver.active.get_current_target().arch == 90
    with pytest.raises(ValueError, match="arch must be one of .*, got 'sm_80'"):
        EmulatedDevice(arch="sm_80")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_elementwise_kernel_on_views(dtype):
    base = torch.randn(700, generator=torch.Generator().manual_seed(0)).to(dtype)
    x, y, out = base[1:601:2], torch.arange(300).to(dtype), torch.full((300,), 7.0).to(dtype)
    with EmulatedDevice(sms=2) as device:
        axpy_kernel[(3,)](x, y, out, 1.5, 290, 2, BLOCK=128)
    want = (1.5 * x.double() + y.double()).float().to(dtype)  # one fp32 fma
    assert torch.equal(out[:290], want[:290]) and (out[290:] == 7).all()
    (report,) = device.launches
    assert (report.kernel, report.grid, report.sms) == ("axpy_kernel", (3, 1, 1), 2)
    assert report.instructions > 0 and report.seconds > 0 and len(report.ctas) == 3


def test_unmasked_access_beyond_a_tensor_is_named():
    x = torch.zeros(300)
    with EmulatedDevice(), pytest.raises(MemoryFault, match="y_ptr") as caught:
        axpy_kernel[(3,)](torch.zeros(400), x, torch.zeros(400), 1.0, 384, 1, BLOCK=128)
    line = next(
        n
        for n, text in enumerate(open(__file__), 1)
        if "y = tl.load(y_ptr" in text and "mask=mask" in text
    )
    assert f"test_emulator_driver.py:{line}" in str(caught.value)


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
@pytest.mark.parametrize(
    "shape,dtype,layout",
    [
        ((256, 128, 320), torch.float16, "nt"),  # cp.async of 16 bytes
        ((130, 72, 96), torch.bfloat16, "tn"),
        ((70, 40, 33), torch.float16, "nn"),  # no alignment: loads and stores by element
    ],
)
def test_stock_matmul(shape, dtype, layout, policy):
    a, b = operands(shape, dtype, layout, seed=1)
    out = torch.full((shape[0], shape[1]), float("nan"), dtype=dtype)
    with EmulatedDevice(policy=policy, seed=5):
        stock_matmul(a, b, out)
    assert_product(out, a, b)


CONFIG = GemmConfig(block_size_m=128, block_size_n=64, block_size_k=64)


@pytest.mark.parametrize("schedule", ["persistent", "clc"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_tlx_kernels(schedule, layout):
    """Every policy and another number of SMs each, ragged in all three extents."""
    shape, dtype = (260, 136, 200), torch.float16 if layout[0] == "n" else torch.bfloat16
    a, b = operands(shape, dtype, layout, seed=2)
    bias = torch.randn(shape[1], generator=torch.Generator().manual_seed(3)).to(dtype)
    for sms, policy in ((1, "lazy"), (2, "eager"), (3, "random")):
        with EmulatedDevice(sms=sms, policy=policy, seed=sms) as device:
            out = matmul(a, b, bias=bias, schedule=schedule, config=CONFIG)
        assert_product(out, a, b, bias)
        (report,) = device.launches
        stores = collections.Counter(s.coords for cta in report.ctas for s in cta.tma_stores)
        assert max(stores.values()) == 1  # no part of the result is stored twice
        tiles = [x for cta in report.ctas for x in (cta.ctaid, *cta.stolen)]
        assert len(tiles) == len(set(tiles)) == report.grid[0]
        assert {s.base for cta in report.ctas for s in cta.tma_stores} == {out.data_ptr()}


def test_a_deadlock_of_a_real_kernel_names_roles_and_barriers():
    """The CLC kernel with a consumer too many: nobody ever asks for the second tile."""
    compiled = compile_kernel("clc", CONFIG)
    ptx = compiled.asm["ptx"]
    broken = re.sub(r"(mbarrier\.init\.shared::cta\.b64 \[%r\d+\], )3;", r"\g<1>4;", ptx)
    assert broken != ptx
    a, b = operands((256, 128, 128), torch.float16, "nn", seed=7)
    out = torch.zeros(256, 128, dtype=torch.float16)
    memory, parameters = GlobalMemory(), []
    for tensor, meta in zip((a, b, out), compiled.metadata.tensordesc_meta, strict=True):
        memory.add(tensor.data_ptr(), tensor.nbytes, "operand")
        rows, columns = tensor.shape
        box = tuple(meta["block_size"][::-1])
        swizzle = Swizzle.from_tensor_map(meta["swizzle"])
        tensor_map = TensorMap(tensor.data_ptr(), 2, (columns, rows), (2 * columns,), box, swizzle)
        parameters += [tensor_map, rows, columns, columns, 1]
    parameters += [256, 128, 128, 0, 0]
    launch = dict(
        grid=(4, 1, 1), parameters=parameters, memory=memory,
        shared_bytes=compiled.metadata.shared, sms=1,
    )  # fmt: skip
    run_ptx(ptx, **launch)
    assert_product(out, a, b)
    with pytest.raises(Deadlock) as caught:
        run_ptx(broken, **launch)
    report = str(caught.value)
    assert "phase 0, 1 of 4 arrivals and 0 bytes pending" in report
    for warp in (0, 1, 2, 3, 6, 7):
        assert f"warp {warp} waits for parity" in report
    assert "(blackwell.py:" in report and "initialised at blackwell.py:" in report


def test_descriptors_of_triton_itself():
    x = torch.randn(96, 160, generator=torch.Generator().manual_seed(4)).half()
    out = torch.zeros(160, 96, dtype=torch.float16)
    with EmulatedDevice():
        transpose_kernel[(3, 5)](
            TensorDescriptor.from_tensor(x, [32, 32]),
            TensorDescriptor.from_tensor(out, [32, 32]),
            BLOCK=32,
        )
    assert torch.equal(out, x.t())


@triton.jit
def copy3d_kernel(in_desc, out_desc):
    out_desc.store([0, 0, 0], in_desc.load([1, 4, 8]))


def test_descriptors_of_rank_three():
    x = torch.randn(3, 20, 40, generator=torch.Generator().manual_seed(6)).half()
    out = torch.zeros(2, 8, 16, dtype=torch.float16)
    box = [2, 8, 16]
    with EmulatedDevice():
        copy3d_kernel[(1,)](
            TensorDescriptor.from_tensor(x, box), TensorDescriptor.from_tensor(out, box)
        )
    assert torch.equal(out, x[1:3, 4:12, 8:24])


@triton.jit
def corner_kernel(desc, out_ptr, BLOCK: tl.constexpr):
    tile = desc.load([BLOCK, 0])
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(out_ptr + rows * BLOCK + columns, tile)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_padding_outside_a_descriptor(padding):
    x = torch.randn(40, 56, generator=torch.Generator().manual_seed(5)).half()
    out = torch.full((32, 32), 3.0, dtype=torch.float16)
    with EmulatedDevice():
        corner_kernel[(1,)](TensorDescriptor.from_tensor(x, [32, 32], padding), out, BLOCK=32)
    assert torch.equal(out[:8], x[32:, :32])
    assert (out[8:] == 0).all() if padding == "zero" else out[8:].isnan().all()


def test_the_former_driver_comes_back_and_devices_nest():
    before = triton.runtime.driver._active
    with EmulatedDevice(sms=3) as outer:
        assert EmulatedDevice.current() is outer
        target = triton.runtime.driver.active.get_current_target()
        assert (target.backend, target.arch) == ("cuda", 100)
        with EmulatedDevice() as inner:
            assert EmulatedDevice.current() is inner
        assert EmulatedDevice.current() is outer
    assert EmulatedDevice.current() is None and triton.runtime.driver._active is before
    with pytest.raises(RuntimeError, match="boom"), EmulatedDevice():
        raise RuntimeError("boom")
    assert EmulatedDevice.current() is None


def test_empty_grids_launch_nothing():
    with EmulatedDevice() as device:
        axpy_kernel[(0,)](torch.zeros(1), torch.zeros(1), torch.zeros(1), 1.0, 1, 1, BLOCK=128)
    assert device.launches == []


def test_autotuning_by_time_is_refused():
    configs = [triton.Config({"BLOCK": block}) for block in (32, 64)]
    tuned = triton.autotune(configs, key=["n"])(axpy_kernel)
    with EmulatedDevice(), pytest.raises(RuntimeError, match="can't be timed"):
        tuned[(1,)](torch.zeros(64), torch.zeros(64), torch.zeros(64), 1.0, 32, 1)


@pytest.mark.parametrize(
    "options,message",
    [({"sms": 0}, "sms"), ({"sms": "4"}, "sms"), ({"policy": "fair"}, "policy must be one of")],
)
def test_device_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        EmulatedDevice(**options)

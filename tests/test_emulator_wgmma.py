"""wgmma against float64 products of matrices laid out byte by byte, and its protocol."""

import numpy as np
import pytest
import torch
from differential_run import few_sms, tutorial_module
from ptx_support import kernel, run
from test_emulator_mma import Placed

from tlx_clc_plugin.emulator import EmulatedDevice, ProtocolError
from tlx_clc_plugin.emulator.descriptors import WGMMA, SmemDescriptor
from tlx_clc_plugin.emulator.swizzle import Swizzle

TYPES = {
    "f16": (torch.float16, 16),
    "bf16": (torch.bfloat16, 16),
    "tf32": (torch.float32, 8),
    "e4m3": (torch.float8_e4m3fn, 32),
    "e5m2": (torch.float8_e5m2, 32),
}
COPY_IN = """
ld.param.b64 %d1, [p0];
mov.u32 %r0, %tid.x;
mov.u32 %r10, smem;
mov.u32 %r12, %r0;
in:
shl.b32 %r13, %r12, 2;
cvt.u64.u32 %d3, %r13;
add.u64 %d2, %d1, %d3;
ld.global.b32 %r14, [%d2];
add.u32 %r15, %r10, %r13;
st.shared.b32 [%r15], %r14;
add.u32 %r12, %r12, 128;
setp.lt.u32 %p1, %r12, {words};
@%p1 bra in;
fence.proxy.async.shared::cta;
bar.sync 0;
"""


def accumulators(n):
    return ", ".join(f"%r{20 + i}" for i in range(n // 2))


def store_accumulators(n):
    lines = ["ld.param.b64 %d1, [p1];", f"mad.wide.u32 %d2, %r0, {2 * n}, %d1;"]
    return "\n".join(lines + [f"st.global.b32 [%d2+{4 * i}], %r{20 + i};" for i in range(n // 2)])


def matrix(fragments, n):
    """(128 threads, N / 2) to (64, N), element by element from the figure in the ISA."""
    d = np.empty((64, n), np.float32)
    for thread in range(128):
        for i in range(n // 2):
            row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
            d[row, i // 4 * 8 + thread % 4 * 2 + i % 2] = fragments[thread, i]
    return d


def product(kind, n, swizzles, major, *, depth=2, policy="random", scale=1):
    """D = 1 + A @ B by ``depth`` instructions, and A and B in float64."""
    dtype, k = TYPES[kind]
    rng = np.random.default_rng(n + 1000 * depth)
    a, b = (torch.from_numpy(rng.standard_normal((x, k * depth))).to(dtype) for x in (64, n))
    placed = [
        Placed(x, start, m == "m", swizzle)
        for x, start, m, swizzle in zip((a, b), (1024, 33 * 1024), major, swizzles, strict=True)
    ]
    image = np.zeros(100 * 1024, np.uint8)
    for x in placed:
        for address, value in x.bytes.items():
            image[address - 1024] = value
    constants = f"{scale}, 1" + (f", {major.count('m', 0, 1)}, {major.count('m', 1)}" * (k == 16))
    lines = [COPY_IN.format(words=image.nbytes // 4), "setp.eq.u32 %p2, %r0, %r0;"]
    lines += [f"mov.b32 %r{20 + i}, 0f3F800000;" for i in range(n // 2)]
    lines.append("wgmma.fence.sync.aligned;")
    for i in range(depth):
        for x, register in zip(placed, ("%d11", "%d12"), strict=True):
            at = SmemDescriptor(x.slice_start(i * k), x.leading, x.stride, x.swizzle, WGMMA)
            lines.append(f"mov.b64 {register}, {at.encode()};")
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} "
            f"{{{accumulators(n)}}}, %d11, %d12, %p2, {constants};"
        )
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    ptx = kernel("\n".join([*lines, store_accumulators(n)]), params=["u64", "u64"], threads=128)
    out = np.zeros((128, n // 2), np.float32)
    run(ptx, image, out, shared_bytes=image.nbytes, policy=policy, seed=3)
    return matrix(out, n), a.double().numpy(), b.double().numpy()


@pytest.mark.parametrize("swizzle", list(Swizzle))
@pytest.mark.parametrize("major", ["kk", "km", "mk", "mm"])
@pytest.mark.parametrize("kind,n", [("f16", 64), ("bf16", 128)])
def test_layouts(kind, n, major, swizzle):
    d, a, b = product(kind, n, (swizzle, swizzle), major)
    np.testing.assert_allclose(d, 1 + a @ b.T, atol=1e-5 * a.shape[1])


@pytest.mark.parametrize("n", [8, 24, 256])
@pytest.mark.parametrize("kind", TYPES)
def test_types_and_widths(kind, n):
    d, a, b = product(kind, n, (Swizzle.B64, Swizzle.B32), "kk", depth=1)
    # Both tf32 operands lose the low 13 bits of their mantissa.
    error = 2.0**-9 * (np.abs(a) @ np.abs(b).T) if kind == "tf32" else 1e-4
    assert (np.abs(d - (1 + a @ b.T)) <= error + 1e-5).all()


def test_sign_of_an_operand():
    d, a, b = product("f16", 16, (Swizzle.B128, Swizzle.B128), "kk", scale=-1)
    np.testing.assert_allclose(d, 1 - a @ b.T, atol=1e-3)


def test_operand_from_registers():
    """A[i, k] = 16 i + k for the fp16 fragment of the ISA's figure, times the identity."""
    a = np.zeros((128, 4, 2), np.float16)
    for thread in range(128):
        for i in range(8):
            row = thread // 32 * 16 + thread % 32 // 4 + (8 if i in (2, 3, 6, 7) else 0)
            column = thread % 4 * 2 + i % 2 + (8 if i >= 4 else 0)
            a[thread, i // 2, i % 2] = 16 * row + column
    image = np.zeros((32, 8), np.float16)  # from the top, core matrices of 8 x 8 along K
    image[:8, :] = np.eye(8)
    lines = [COPY_IN.format(words=128), "ld.param.b64 %d5, [p2];"]
    lines += ["mad.wide.u32 %d6, %r0, 16, %d5;"]
    lines += [f"ld.global.b32 %r{i}, [%d6+{4 * (i - 2)}];" for i in range(2, 6)]
    descriptor = SmemDescriptor(1024, 128, 256, Swizzle.NONE, WGMMA).encode()
    lines += [f"mov.b64 %d12, {descriptor};", "wgmma.fence.sync.aligned;"]
    lines += [
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%r20, %r21, %r22, %r23}, {%r2, %r3, %r4, %r5}, %d12, 0, 1, 1, 0;",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]
    ptx = kernel("\n".join([*lines, store_accumulators(8)]), params=["u64"] * 3, threads=128)
    out = np.zeros((128, 4), np.float32)
    run(ptx, image, out, a)
    want = 16 * np.arange(64)[:, None] + np.arange(8)
    np.testing.assert_array_equal(matrix(out, 8), want)


MMA = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
    f"{{{accumulators(8)}}}, %d11, %d12, 1, 1, 1, 0, 0;"
)


def protocol(*lines, setup="mov.b64 %d11, %d12;", **options):
    descriptor = SmemDescriptor(1024, 128, 256, Swizzle.NONE, WGMMA).encode()
    body = [COPY_IN.format(words=1024), f"mov.b64 %d12, {descriptor};", setup]
    body += [f"mov.b32 %r{20 + i}, 0f00000000;" for i in range(4)]
    body += [*lines, store_accumulators(8)]
    out = np.zeros((128, 4), np.float32)
    ptx = kernel("\n".join(body), params=["u64", "u64"], threads=128)
    run(ptx, np.ones(2048, np.float16), out, **options)
    return out


FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
def test_results_arrive_with_the_wait(policy):
    wait = "wgmma.wait_group.sync.aligned 0;"
    assert (protocol(FENCE, MMA, COMMIT, wait, policy=policy) == 16).all()
    assert (protocol(FENCE, MMA, MMA, COMMIT, wait, MMA, COMMIT, wait, policy=policy) == 48).all()
    for early in ([], [COMMIT], [COMMIT, wait.replace("0", "1")], [wait]):
        assert np.isnan(protocol(FENCE, MMA, *early, policy=policy)).all()


@pytest.mark.parametrize(
    "lines,setup,message",
    [
        ([MMA], "mov.b64 %d11, %d12;", "written after the last wgmma.fence"),
        (
            [FENCE, "mov.b32 %r21, 0f3F800000;", MMA],
            "mov.b64 %d11, %d12;",
            "register %r21 was written after the last wgmma.fence",
        ),
        (
            [FENCE, MMA, COMMIT, "mov.b32 %r22, 0;", "wgmma.wait_group.sync.aligned 0;"],
            "mov.b64 %d11, %d12;",
            "register %r22 was written while",
        ),
        (
            [FENCE, MMA],
            "shr.u32 %r3, %r0, 5;\ncvt.u64.u32 %d4, %r3;\nadd.u64 %d11, %d12, %d4;",
            "different operations",
        ),
    ],
)
def test_misuse(lines, setup, message):
    with pytest.raises(ProtocolError, match=message):
        protocol(*lines, setup=setup)


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_warp_specialised_tutorial(layout, dtype, policy):
    """fbtriton's Hopper GEMM, with ragged tiles."""
    m, n, k = 264, 136, 200
    generator = torch.Generator().manual_seed(7)
    a = torch.randn((m, k), generator=generator).to(dtype)
    b = torch.randn((k, n), generator=generator).to(dtype)
    if layout == "tt":
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    config = {"BM": 128, "BN": 128, "BK": 64, "GROUP_SIZE_M": 8, "NUM_STAGES": 2}
    config |= {"NUM_MMA_WARPS": 8, "NUM_MMA_GROUPS": 2, "EPILOGUE_SUBTILE": True, "NUM_CTAS": 1}
    with EmulatedDevice(arch="sm_90a", sms=2, policy=policy, seed=1), few_sms(2):
        c = tutorial_module("hopper_gemm_ws").matmul(a, b, config=config)
    exact = a.double() @ b.double()
    allowed = 2.0**-11 * exact.abs() + 2.0**-20 * (a.double().abs() @ b.double().abs())
    assert ((c.double() - exact).abs() <= allowed + 1e-7).all()

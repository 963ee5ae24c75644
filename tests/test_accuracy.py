"""The checker accepts every way hardware may round, and nothing a broken kernel leaves."""

import math

import numpy as np
import pytest
import torch

from tlx_clc_plugin.accuracy import check

DTYPES = [torch.float16, torch.bfloat16]
# Significand bits (the hidden one included), least normal and greatest exponent: IEEE 754 binary16
# and bfloat16.
FORMATS = {torch.float16: (11, -14, 15), torch.bfloat16: (8, -126, 127)}
KS = [1, 2, 17, 64, 300, 2048, 65536]
TILE, K_BLOCK = 32, 64


def make(kind, M, N, K, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(shape, generator=generator) for shape in ((M, K), (K, N)))
    if kind == "scaled":  # as tritonbench's gemm operator makes them
        a, b = (a + 1) / K, (b + 1) / K
    bias = torch.randn(N, generator=generator)
    return a.to(dtype), b.to(dtype), bias.to(dtype)


def float64(x):
    return x.double().numpy()


def rounded(x, dtype):
    """float64 to the nearest of ``dtype``, ties to even, from the definition of the format."""
    precision, least, greatest = FORMATS[dtype]
    exponent = np.maximum(np.frexp(x)[1] - 1, least)
    spacing = np.exp2(exponent - precision + 1)
    y = np.rint(x / spacing) * spacing
    y = np.where(np.abs(y) >= 2.0 ** (greatest + 1), np.copysign(np.inf, y), y)
    return torch.from_numpy(y).to(dtype)


def sequential(a, b):
    """fp32 accumulation in the order of k, each sum rounded to nearest."""
    products = (a[:, :, None] * b[None]).astype(np.float32)
    return np.cumsum(products, axis=1, dtype=np.float32)[:, -1].astype(np.float64)


def tensor_core(a, b, dtype):
    """fp32 accumulation of H100 and B200 (arXiv:2512.07004): 16 products a step, truncated."""
    _, least, _ = FORMATS[dtype]
    (M, K), N = a.shape, b.shape[1]
    exponent_a, exponent_b = (np.maximum(np.frexp(x)[1] - 1, least) for x in (a, b))
    total = np.zeros((M, 1, N))
    for k in range(0, K, 16):
        step = slice(k, k + 16)
        terms = np.concatenate([total, a[:, step, None] * b[None, step]], axis=1)
        exponents = exponent_a[:, step, None] + exponent_b[None, step]
        exponents = np.concatenate([np.frexp(total)[1] - 1, exponents], axis=1)
        last = np.exp2(np.where(terms == 0, -200, exponents).max(1, keepdims=True) - 25)
        total = np.trunc(terms / last).sum(1, keepdims=True) * last
        last = np.exp2(np.maximum(np.frexp(total)[1] - 1, -126) - 23)
        total = np.trunc(total / last) * last
    return total[:, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["randn", "scaled"])
@pytest.mark.parametrize("K", KS)
def test_accepts_correct_rounding_and_rejects_the_rest(K, kind, dtype):
    for seed in range(1 if K > 10000 else 3):
        a, b, bias = make(kind, 2 * TILE, 2 * TILE, K, dtype, seed=K + seed)
        exact = float64(a) @ float64(b)
        verdict = check(rounded(exact, dtype), a, b)
        # Not 0 only because float64, too, sums with an error.
        assert verdict.ok and verdict.error < 1e-5, verdict
        for name, wrong in faults(exact, a, b):
            verdict = check(rounded(wrong, dtype), a, b)
            assert not verdict.ok and verdict.error > 1, name

        with_bias = exact + float64(bias)
        assert check(rounded(with_bias, dtype), a, b, bias).ok
        assert check(rounded(exact, dtype) + bias, a, b, bias).ok
        rolled = exact + np.roll(float64(bias), 1)
        for name, wrong in {"off by one": rolled, "1.01": 1.01 * with_bias}.items():
            assert not check(rounded(wrong, dtype), a, b, bias).ok, name
        if kind == "randn" and K < 10000:  # scaled products vanish beside the bias
            for name, wrong in faults(exact, a, b):
                wrong = rounded(wrong + float64(bias), dtype)
                assert not check(wrong, a, b, bias).ok, name
            assert not check(rounded(exact, dtype), a, b, bias).ok


def faults(exact, a, b):
    """What broken kernels leave instead of the product ``exact``."""
    yield "all zero", np.zeros_like(exact)
    yield "scaled by 1.01", 1.01 * exact
    tile, other = np.s_[:TILE, TILE:], np.s_[TILE:, :TILE]
    for name, value in (("zero", 0.0), ("nan", np.nan), ("swapped", exact[other])):
        wrong = exact.copy()
        wrong[tile] = value
        if name == "swapped":
            wrong[other] = exact[tile]
        yield f"tile {name}", wrong
    yield "transposed", exact.T
    wrong = exact.copy()
    wrong[-1, 3] = np.nan
    yield "one NaN", wrong
    if a.shape[1] >= K_BLOCK:
        middle = (a.shape[1] // 2) // K_BLOCK * K_BLOCK
        block = np.s_[middle : middle + K_BLOCK]
        missing = float64(a[:, block]) @ float64(b[block])
        yield "K block missing", exact - missing
        yield "K block twice", exact + missing
        wrong = exact.copy()
        wrong[tile] -= missing[tile]
        yield "K block missing in one tile", wrong


INPUTS = {
    "randn": lambda r: r(),
    "scaled": lambda r: (r() + 1) / r().shape[-1],
    "positive": lambda r: np.abs(r()),
    "spread": lambda r: r() * np.exp(2 * r()),
    "equal": lambda r: np.full_like(r(), np.abs(r()).flat[0]),
    "subnormal": lambda r: r() * 2.0**-14,
    "zeros": lambda r: np.zeros_like(r()),
    "cancelling": lambda r: r() * np.where(np.arange(r().shape[-1]) % 2, 1, -1),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("shape", [(16, 16, 48), (1, 40, 1000), (40, 1, 5000), (6, 5, 65536)])
def test_accepts_what_hardware_gives(shape, kind, dtype):
    M, N, K = shape
    rng = np.random.default_rng([M, N, K, len(kind)])
    a, b = (
        rounded(INPUTS[kind](lambda s=shape: rng.standard_normal(s)), dtype)
        for shape in ((M, K), (N, K))
    )
    b = b.t()
    bias = rounded(rng.standard_normal(N), dtype)
    outputs = {
        "torch": torch.matmul(a, b),
        "tensor core": rounded(tensor_core(float64(a), float64(b), dtype), dtype),
    }
    if kind != "equal" or K < 10000:  # repeated roundings to nearest don't have mean zero
        outputs["sequential"] = rounded(sequential(float64(a), float64(b)), dtype)
    for name, output in outputs.items():
        verdict = check(output, a, b)
        assert verdict.ok, (name, verdict)
        assert check(output + bias, a, b, bias).ok, name


def one_row(dtype, *products):
    """Inputs of a 1 x 1 product with these terms."""
    a = torch.tensor([products], dtype=dtype)
    return a, torch.ones(len(products), 1, dtype=dtype)


def verdict_on(value, dtype, *products):
    a, b = one_row(dtype, *products)
    return check(torch.tensor([[value]], dtype=dtype), a, b)


def test_error_is_a_share_of_the_bound():
    # 4096 ones. fp16 is 4 apart there, so 4100 is 2 too far from the exact sum. The bound, with
    # the slices' p_k = 256, 512, .. 4096, each for 16 steps and 256 products (less the first):
    p = [256 * i for i in range(1, 17)]
    bound = 2**-24 * (
        6 * 16 * sum(p) + 6 * math.sqrt(255 * p[0] ** 2 + 256 * sum(x * x for x in p[1:]))
    )
    a, b = torch.ones(3, 4096).half(), torch.ones(4096, 5).half()
    output = torch.full((3, 5), 4096.0).half()
    assert check(output, a, b) == check(output, a, b).__class__(True, 0.0)
    output[1, 2] = 4100
    verdict = check(output, a, b)
    assert verdict.error == pytest.approx(2 / bound, rel=1e-5)
    assert not verdict.ok and verdict.index == (1, 2)
    assert "got 4100, expected 4096; 1 of 15 elements wrong" in verdict.reason


def test_single_products_must_round_correctly():
    # Of all products of two fp16 significands those nearest to a tie, but no tie.
    x = np.arange(1024, 2048) / 1024
    products = np.outer(x, x)
    right = rounded(products, torch.float16).numpy()
    toward = np.where(products > right, 1, -1).astype(np.int16)
    other = (right.view(np.int16) + toward).view(np.float16)
    margin = np.abs(other - products) - np.abs(right - products)
    margin[margin == 0] = np.inf
    nearest = np.argsort(margin / products, axis=None)[:20]
    below_two = np.argmin(np.where(right == 2 - 2**-10, margin, np.inf))
    for i, j in zip(*np.unravel_index([*nearest, below_two], margin.shape), strict=True):
        a, b = (torch.tensor([[value]]).half() for value in (x[i], x[j]))
        assert check(torch.tensor([[right[i, j]]]), a, b).error == 0
        assert not check(torch.tensor([[other[i, j]]]), a, b).ok


# A row of a, a column of b (bit patterns of fp16) and what an H200 makes of them in fp32: the
# subnormal in b spoils its alignment of the other products.
H200 = (
    "bc92 b27f 35cf 96db f866 456d 49c9 3643 35d6 3a63 3e48 2dfc 3483 5025 1904 339a",
    "0098 2517 1545 1516 0005 14ae 0733 21ae 176c 2644 0f63 152d 0d6a 0019 14a6 2279",
    0.02166616916656494,
)


def test_tensor_cores_align_subnormals():
    a, b = (np.array([int(bits, 16) for bits in row.split()], np.uint16) for row in H200[:2])
    a, b = (x.view(np.float16).astype(np.float64) for x in (a, b))
    assert tensor_core(a[None], b[:, None], torch.float16) == H200[2]
    # Small differences: of many, some cross a rounding boundary.
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 16, 64, 64)) / 4
    a[:, :, 0], b[:, 0] = 2.0**15, 5 * 2.0**-24
    a, b = (rounded(x, torch.float16) for x in (a, b))
    for left, right in zip(a, b, strict=True):
        output = rounded(tensor_core(float64(left), float64(right), torch.float16), torch.float16)
        assert check(output, left, right).ok


@pytest.mark.parametrize(
    "products, right, wrong",
    [
        ((65504.0, 15.0), [65504.0], [math.inf, 65472.0, math.nan]),
        ((65504.0, 17.0), [math.inf], [65504.0, -math.inf, math.nan]),
        ((-65504.0, -32.0), [-math.inf], [-65504.0, math.inf]),
        ((math.inf, 1.0), [math.inf], [65504.0, -math.inf, math.nan]),
        ((math.inf, -math.inf), [math.nan], [math.inf, 0.0]),
        ((math.nan, 1.0), [math.nan], [1.0, math.inf]),
        ((2.0**-24, 2.0**-24), [2.0**-23], [2.0**-24, 3 * 2.0**-24, 0.0]),
        ((1.0, -1.0), [0.0, -0.0], [2.0**-19, math.nan]),
    ],
)
def test_ends_of_the_fp16_range(products, right, wrong):
    for value in right:
        assert verdict_on(value, torch.float16, *products).ok, value
    for value in wrong:
        assert not verdict_on(value, torch.float16, *products).ok, value


def test_partial_sums_may_overflow_fp32():
    terms = (3e38, 3e38, -3e38)
    for value, ok in ((3e38, True), (math.inf, True), (math.nan, True), (1e38, False), (0, False)):
        assert verdict_on(value, torch.bfloat16, *terms).ok is ok, value


def test_bf16_products_may_underflow_in_fp32():
    a, b = torch.full((1, 65536), 1.5 * 2.0**-75), torch.full((65536, 1), 2.0**-75)
    # The sum is 1.5 * 2**-134, but fp32 ends at 2**-149 and bf16 at 2**-133.
    for value, ok in ((2.0**-133, True), (0.0, True), (2.0**-131, False)):
        output = torch.tensor([[value]]).bfloat16()
        assert check(output, a.bfloat16(), b.bfloat16()).ok is ok, value


def test_product_may_overflow_before_a_bias():
    a, b = one_row(torch.float16, 65504.0, 32.0)
    bias = torch.tensor([-100.0]).half()
    for output, ok in ((a @ b + bias, True), ((a @ b + bias) * math.nan, False)):
        assert check(output, a, b, bias).ok is ok


def test_worst_element_and_extent_are_named():
    a, b, _ = make("randn", 200, 300, 96, torch.bfloat16, seed=0)
    output = torch.matmul(a, b)
    output[64:128, 32:64] = 0
    output[100, 40] = 1e6
    verdict = check(output, a, b)
    assert verdict.index == (100, 40)
    assert "in rows 64..127, columns 32..63" in verdict.reason
    assert f"got {output[100, 40].item():.6g}" in verdict.reason


def test_large_outputs_are_checked_in_blocks(monkeypatch):
    a, b, bias = make("randn", 70, 90, 33, torch.float16, seed=1)
    output = torch.matmul(a, b) + bias
    whole = check(output, a, b, bias)
    monkeypatch.setattr("tlx_clc_plugin.accuracy._BLOCK", 32)
    assert check(output, a, b, bias) == whole
    output[69, 89] += 1
    assert check(output, a, b, bias).index == (69, 89)


def test_what_is_no_product_has_a_reason():
    a, b, _ = make("randn", 4, 6, 8, torch.float16, seed=0)
    output = torch.matmul(a, b)
    for wrong, reason in {
        None: "NoneType, not a tensor",
        output.t(): "shape (6, 4), expected (4, 6)",
        output.float(): "torch.float32, expected torch.float16",
        output.to("meta"): "on meta, expected cpu",
    }.items():
        verdict = check(wrong, a, b)
        assert not verdict.ok and math.isinf(verdict.error) and reason in verdict.reason


@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (4, 4, 0)])
def test_empty_products(shape):
    M, N, K = shape
    a, b, bias = make("randn", M, N, K, torch.float16, seed=0)
    assert check(torch.matmul(a, b), a, b).ok
    assert check(torch.matmul(a, b) + bias, a, b, bias).ok
    if M * N:
        assert not check(torch.ones(M, N).half(), a, b).ok


def test_inputs_that_do_not_fit_are_named():
    a, b, bias = make("randn", 4, 6, 8, torch.float16, seed=0)
    output = torch.matmul(a, b)
    with pytest.raises(TypeError, match="a must be float16 or bfloat16, got torch.float32"):
        check(output, a.float(), b)
    with pytest.raises(TypeError, match="b must be torch.float16 on cpu"):
        check(output, a, b.bfloat16())
    with pytest.raises(ValueError, match=r"\(4, 8\) and \(5, 6\)"):
        check(output, a, b[:5])
    with pytest.raises(ValueError, match="bias must have length N = 6"):
        check(output, a, b, bias[:5])

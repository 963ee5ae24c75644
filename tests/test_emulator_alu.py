"""Arithmetic of the emulator against Python integers, exact fractions, numpy and torch."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from ptx_support import kernel, run, run_instruction

from tlx_clc_plugin.emulator import UnsupportedPtx

EDGES = {
    bits: [0, 1, 2, 31, 32, 33, 63, 64, 255, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1]
    for bits in (16, 32, 64)
}


def integers(rng: np.random.Generator, bits: int) -> np.ndarray:
    """Bit patterns: edge values, small and any numbers."""
    edges = rng.choice(np.array(EDGES[bits], np.uint64), 12)
    small = rng.integers(0, 40, 8, np.uint64)
    anything = rng.integers(0, 1 << 64, 12, np.uint64) >> np.uint64(64 - bits)
    values = np.concatenate([edges, small, anything]) & np.uint64((1 << bits) - 1)
    return rng.permutation(values).astype(f"u{bits // 8}")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


# PTX ISA semantics on Python integers, in terms of operands already read as the type says.
TWO_OPERANDS = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul.lo": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: a * b >> bits,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
}
BITWISE = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", [*TWO_OPERANDS, "div", "rem"])
def test_integer_arithmetic(name, kind):
    bits = int(kind[1:])
    read = (lambda v: signed(int(v), bits)) if kind[0] == "s" else int
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, b = integers(rng, bits), integers(rng, bits)
        if name in ("div", "rem"):
            b[b == 0] = 3  # unspecified by the ISA
        got = run_instruction(f"{name}.{kind} {{d}}, {{0}}, {{1}}", [a, b], f"u{bits // 8}")
        for x, y, z in zip(a, b, got, strict=True):
            x, y = read(x), read(y)
            if name == "div":
                want = trunc_div(x, y)
            elif name == "rem":
                want = x - trunc_div(x, y) * y
            else:
                want = TWO_OPERANDS[name](x, y, bits)
            assert int(z) == want % (1 << bits), (name, kind, x, y)


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_division_by_zero_is_quiet(kind):
    a, zero = integers(np.random.default_rng(0), 32), np.zeros(32, np.uint32)
    assert (run_instruction(f"div.{kind} {{d}}, {{0}}, {{1}}", [a, zero], "u4") == 2**32 - 1).all()
    assert (run_instruction(f"rem.{kind} {{d}}, {{0}}, {{1}}", [a, zero], "u4") == a).all()


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("name", BITWISE)
def test_bitwise(name, bits):
    rng = np.random.default_rng(bits)
    a, b = integers(rng, bits), integers(rng, bits)
    got = run_instruction(f"{name}.b{bits} {{d}}, {{0}}, {{1}}", [a, b], f"u{bits // 8}")
    assert [int(z) for z in got] == [
        BITWISE[name](int(x), int(y)) for x, y in zip(a, b, strict=True)
    ]
    assert (run_instruction(f"not.b{bits} {{d}}, {{0}}", [a], f"u{bits // 8}") == ~a).all()


@pytest.mark.parametrize("kind", ["b16", "u16", "s16", "b32", "u32", "s32", "b64", "s64"])
@pytest.mark.parametrize("name", ["shl", "shr"])
def test_shifts_clamp_their_amount(name, kind):
    bits = int(kind[1:])
    if (name, kind[0]) == ("shl", "s") or (name, kind[0]) == ("shl", "u"):
        kind = f"b{bits}"
    rng = np.random.default_rng(bits)
    a, amount = integers(rng, bits), integers(rng, 32)
    for constant in (None, 0, 3, bits - 1, bits, bits + 9):
        if constant is None:
            text, inputs = f"{name}.{kind} {{d}}, {{0}}, {{1}}", [a, amount]
        else:
            text, inputs = f"{name}.{kind} {{d}}, {{0}}, {constant}", [a]
        got = run_instruction(text, inputs, f"u{bits // 8}")
        for x, n, z in zip(a, amount, got, strict=True):
            n = min(int(n) if constant is None else constant, bits)
            x = signed(int(x), bits) if kind[0] == "s" else int(x)
            want = x << n if name == "shl" else x >> n
            assert int(z) == want % (1 << bits)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_wide_products(kind):
    rng = np.random.default_rng(7)
    a, b, c = integers(rng, 32), integers(rng, 32), integers(rng, 64)
    read = (lambda v: signed(int(v), 32)) if kind == "s32" else int
    mul = run_instruction(f"mul.wide.{kind} {{d}}, {{0}}, {{1}}", [a, b], "u8")
    mad = run_instruction(f"mad.wide.{kind} {{d}}, {{0}}, {{1}}, {{2}}", [a, b, c], "u8")
    by_constant = run_instruction(f"mad.wide.{kind} {{d}}, {{0}}, 2, {{1}}", [a, c], "u8")
    low = run_instruction(f"mad.lo.{kind} {{d}}, {{0}}, {{1}}, {{2}}", [a, b, b], "u4")
    for i in range(32):
        x, y, z = read(a[i]), read(b[i]), int(c[i])
        assert int(mul[i]) == x * y % 2**64
        assert int(mad[i]) == (x * y + z) % 2**64
        assert int(by_constant[i]) == (2 * x + z) % 2**64
        assert int(low[i]) == (x * y + y) % 2**32


def bfe_by_bits(a: int, position: int, length: int, bits: int, is_signed: bool) -> int:
    """The ISA's own definition of bfe, bit by bit."""
    position, length, top = position & 0xFF, length & 0xFF, bits - 1
    if not is_signed or length == 0:
        sign = 0
    else:
        sign = a >> min(position + length - 1, top) & 1
    result = 0
    for i in range(bits):
        bit = a >> position + i & 1 if i < length and position + i <= top else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(kind):
    bits = int(kind[1:])
    rng = np.random.default_rng(bits)
    a, position, length = integers(rng, bits), integers(rng, 32), integers(rng, 32)
    got = run_instruction(f"bfe.{kind} {{d}}, {{0}}, {{1}}, {{2}}", [a, position, length], a.dtype)
    constants = run_instruction(f"bfe.{kind} {{d}}, {{0}}, 4, 14", [a], a.dtype)
    for i in range(32):
        x, p, n = int(a[i]), int(position[i]), int(length[i])
        assert int(got[i]) == bfe_by_bits(x, p, n, bits, kind[0] == "s"), (x, p, n)
        assert int(constants[i]) == bfe_by_bits(x, 4, 14, bits, kind[0] == "s")


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits):
    rng = np.random.default_rng(bits)
    a, b = integers(rng, bits), integers(rng, bits)
    position, length = integers(rng, 32), integers(rng, 32)
    got = run_instruction(
        f"bfi.b{bits} {{d}}, {{0}}, {{1}}, {{2}}, {{3}}", [a, b, position, length], a.dtype
    )
    for i in range(32):
        want, p = int(b[i]), int(position[i]) & 0xFF
        for bit in range(int(length[i]) & 0xFF):
            if p + bit < bits:
                want = want & ~(1 << p + bit) | (int(a[i]) >> bit & 1) << p + bit
        assert int(got[i]) == want


def test_prmt_lop3_and_funnel_shift():
    rng = np.random.default_rng(1)
    a, b, c = (integers(rng, 32) for _ in range(3))
    prmt = run_instruction("prmt.b32 {d}, {0}, {1}, {2}", [a, b, c], "u4")
    lop3 = run_instruction("lop3.b32 {d}, {0}, {1}, {2}, 0xE8", [a, b, c], "u4")
    left = run_instruction("shf.l.wrap.b32 {d}, {0}, {1}, {2}", [a, b, c], "u4")
    right = run_instruction("shf.r.clamp.b32 {d}, {0}, {1}, {2}", [a, b, c], "u4")
    for i in range(32):
        x, y, z = int(a[i]), int(b[i]), int(c[i])
        octets, want = (x | y << 32).to_bytes(8, "little"), []
        for nibble in (z >> s & 15 for s in (0, 4, 8, 12)):
            octet = octets[nibble & 7]
            want.append((255 if octet & 128 else 0) if nibble & 8 else octet)
        assert int(prmt[i]) == int.from_bytes(bytes(want), "little")
        assert int(lop3[i]) == (x & y | x & z | y & z)  # 0xE8 is the majority
        both = y << 32 | x
        assert int(left[i]) == both << (z & 31) >> 32 & 0xFFFFFFFF
        assert int(right[i]) == both >> min(z, 32) & 0xFFFFFFFF


COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("kind", ["u32", "s32", "b32", "s16", "u64", "s64"])
@pytest.mark.parametrize("comparison", COMPARE)
def test_integer_comparisons(comparison, kind):
    if kind[0] == "b" and comparison not in ("eq", "ne"):
        return
    bits = int(kind[1:])
    rng = np.random.default_rng(bits)
    a, b = integers(rng, bits), integers(rng, bits)
    b[::3] = a[::3]
    read = (lambda v: signed(int(v), bits)) if kind[0] == "s" else int
    want = [COMPARE[comparison](read(x), read(y)) for x, y in zip(a, b, strict=True)]
    for opcode in (f"setp.{comparison}.{kind}", f"setp.{kind}.{comparison}"):
        # The second order is not the ISA's, but TLX's inline assembly has it.
        assert list(run_instruction(f"{opcode} {{d}}, {{0}}, {{1}}", [a, b], bool)) == want


@pytest.mark.parametrize("comparison", [*COMPARE, "equ", "neu", "ltu", "leu", "gtu", "geu"])
def test_float_comparisons_with_nan(comparison):
    rng = np.random.default_rng(3)
    a = rng.choice(np.array([0, -0.0, 1, -1, np.inf, np.nan], np.float32), 32)
    b = rng.choice(np.array([0, -0.0, 1, -1, np.inf, np.nan], np.float32), 32)
    got = run_instruction(f"setp.{comparison}.f32 {{d}}, {{0}}, {{1}}", [a, b], bool)
    for x, y, z in zip(a, b, got, strict=True):
        unordered = bool(np.isnan(x) or np.isnan(y))
        ordered = not unordered and COMPARE[comparison[:2]](float(x), float(y))
        assert z == (ordered or (unordered and comparison.endswith("u")))


def test_setp_combines_with_a_predicate_and_gives_both_results():
    rng = np.random.default_rng(4)
    a, b = integers(rng, 32), integers(rng, 32)
    c = rng.integers(0, 2, 32).astype(bool)
    less = a < b
    for combine, f in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        text = f"setp.lt.{combine}.u32 {{d}}|%p20, {{0}}, {{1}}, {{2}}"
        assert (run_instruction(text, [a, b, c], bool) == f(less, c)).all()
        text = f"setp.lt.{combine}.u32 %p20|{{d}}, {{0}}, {{1}}, !{{2}}"
        assert (run_instruction(text, [a, b, c], bool) == f(~less, ~c)).all()


def test_selp_and_guards_work_by_lane():
    rng = np.random.default_rng(5)
    a, b = integers(rng, 32), integers(rng, 32)
    p = rng.integers(0, 2, 32).astype(bool)
    assert (
        run_instruction("selp.b32 {d}, {0}, {1}, {2}", [a, b, p], "u4") == np.where(p, a, b)
    ).all()
    text = "mov.b32 {d}, {0};\n@{2} mov.b32 {d}, {1}"
    assert (run_instruction(text, [a, b, p], "u4") == np.where(p, b, a)).all()
    text = "mov.b32 {d}, {0};\n@!{2} add.s32 {d}, {d}, {1}"
    assert (run_instruction(text, [a, b, p], "u4") == np.where(p, a, a + b)).all()


@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_conversions(source, to):
    rng = np.random.default_rng(6)
    a = integers(rng, int(source[1:]))
    value = a.view(source[0].replace("s", "i") + str(a.dtype.itemsize))
    bits = int(to[1:])
    got = run_instruction(f"cvt.{to}.{source} {{d}}, {{0}}", [a], f"u{bits // 8}")
    assert [int(z) for z in got] == [int(v) % (1 << bits) for v in value]
    low, high = (0, (1 << bits) - 1) if to[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    got = run_instruction(f"cvt.sat.{to}.{source} {{d}}, {{0}}", [a], f"u{bits // 8}")
    assert [int(z) for z in got] == [min(max(int(v), low), high) % (1 << bits) for v in value]


def floats(rng: np.random.Generator) -> np.ndarray:
    """fp32 of many magnitudes, with halves, specials and values near fp16's limits."""
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 65504, 65520, -65519, 6e-8, 2.5, 3.5, -0.5]
    )
    scaled = rng.standard_normal(20) * 10.0 ** rng.integers(-8, 6, 20)
    return rng.permutation(np.concatenate([special, scaled])).astype(np.float32)


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits, any NaN being as good as another."""
    nan = np.isnan(want)
    integer = f"u{want.dtype.itemsize}"
    return bool(np.isnan(got[nan]).all() and (got.view(integer) == want.view(integer))[~nan].all())


def to_bf16(a: np.ndarray) -> np.ndarray:
    return torch.from_numpy(a).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def bf16_value(bits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()


@pytest.mark.parametrize("seed", range(3))
def test_float_conversions(seed):
    rng = np.random.default_rng(seed)
    a, b = floats(rng), floats(rng)
    with np.errstate(over="ignore"):
        half = a.astype(np.float16)
        pairs = np.stack([b, a], 1).astype(np.float16)
    assert same(run_instruction("cvt.rn.f16.f32 {d}, {0}", [a], "f2"), half)
    assert same(run_instruction("cvt.f32.f16 {d}, {0}", [half], "f4"), half.astype(np.float32))
    packed = run_instruction("cvt.rn.f16x2.f32 {d}, {0}, {1}", [a, b], "u4")
    assert same(packed.view(np.float16), pairs.reshape(-1))  # {0} is the upper half
    ties = a.view(np.uint32) & 0xFFFF0000 | 0x8000
    for x in (ties.view(np.float32), a):
        bf16 = run_instruction("cvt.rn.bf16.f32 {d}, {0}", [x], "u2")
        assert same(bf16_value(bf16), bf16_value(to_bf16(x)))
    packed = run_instruction("cvt.rn.bf16x2.f32 {d}, {0}, {1}", [a, b], "u4").view(np.uint16)
    assert same(bf16_value(packed[1::2].copy()), bf16_value(to_bf16(a)))
    assert same(bf16_value(packed[::2].copy()), bf16_value(to_bf16(b)))
    assert same(run_instruction("cvt.f32.bf16 {d}, {0}", [bf16], "f4"), bf16_value(bf16))
    for name, rounded in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        got = run_instruction(f"cvt.{name}.s32.f32 {{d}}, {{0}}", [a], "i4")
        for x, z in zip(a, got, strict=True):
            want = 0 if np.isnan(x) else min(max(float(rounded(x)), -(2**31)), 2**31 - 1)
            assert int(z) == int(want)
    i = integers(rng, 32)
    assert (
        run_instruction("cvt.rn.f32.s32 {d}, {0}", [i], "f4") == i.view("i4").astype("f4")
    ).all()


def test_conversions_toward_zero():
    a = floats(np.random.default_rng(9))
    for kind, value, bits in (("f16", None, 11), ("bf16", bf16_value, 8)):
        got = run_instruction(
            f"cvt.rz.{kind}.f32 {{d}}, {{0}}", [a], "f2" if value is None else "u2"
        )
        got = got.astype(np.float32) if value is None else value(got)
        finite = np.isfinite(a)
        assert (np.abs(got[finite]) <= np.abs(a[finite])).all()
        assert (np.isnan(got) == np.isnan(a)).all() and (got == a)[np.isinf(a)].all()
        normal = finite & (np.abs(a) > 1e-4) & (np.abs(a) < 65504)
        error = np.abs(got[normal] - a[normal])
        assert (error < np.abs(a[normal]) * 2.0 ** (1 - bits)).all()


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_float_arithmetic(name):
    rng = np.random.default_rng(10)
    a, b = floats(rng), floats(rng)
    operation = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    with np.errstate(all="ignore"):
        want = operation(a, b)
        x, y = a.astype(np.float16), b.astype(np.float16)
        half = operation(x.astype(np.float64), y.astype(np.float64)).astype(np.float16)
    assert same(run_instruction(f"{name}.f32 {{d}}, {{0}}, {{1}}", [a, b], "f4"), want)
    assert same(run_instruction(f"{name}.f16 {{d}}, {{0}}, {{1}}", [x, y], "f2"), half)
    # Packed: pairs of elements in one register.
    pairs = [np.concatenate([v, v[::-1]]).view("u8") for v in (a, b)]
    got = run_instruction(f"{name}.rn.f32x2 {{d}}, {{0}}, {{1}}", pairs, "u8").view("f4")
    assert same(got, np.concatenate([want, operation(a, b)[::-1]]))


def exactly_rounded(value: Fraction, dtype: type) -> float:
    """``value`` to nearest, ties to even, by comparing exact neighbours."""
    guess = dtype(float(value))
    around = [np.nextafter(guess, dtype(-np.inf)), guess, np.nextafter(guess, dtype(np.inf))]
    best = min(abs(Fraction(float(x)) - value) for x in around)
    nearest = [x for x in around if abs(Fraction(float(x)) - value) == best]
    return float(min(nearest, key=lambda x: int(x.view(f"u{x.dtype.itemsize}")) & 1))


@pytest.mark.parametrize("seed", range(4))
def test_fma_rounds_once(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(32).astype(np.float32) for _ in range(2))
    # An addend that nearly cancels the product, or sits at half a unit of it, rounds badly twice.
    c = -(a.astype(np.float64) * b).astype(np.float32)
    c[::2] = (rng.integers(1, 99, 16) * 2.0 ** rng.integers(-60, 20, 16)).astype(np.float32)
    # The sum is just below the middle of two fp32 numbers, and on it in fp64.
    a[0], b[0], c[0] = 2**-12 * (1 + 2**-23), 2**-12 * (1 - 2**-23), 1 + 2**-23
    got = run_instruction("fma.rn.f32 {d}, {0}, {1}, {2}", [a, b, c], "f4")
    for x, y, z, r in zip(a, b, c, got, strict=True):
        want = exactly_rounded(
            Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), np.float32
        )
        assert float(r) == want
    c[::2] = (rng.integers(1, 99, 16) * 2.0 ** rng.integers(-30, 9, 16)).astype(np.float32)
    a, b, c = (v.astype(np.float16) for v in (a, b, c))
    got = run_instruction("fma.rn.f16 {d}, {0}, {1}, {2}", [a, b, c], "f2")
    for x, y, z, r in zip(a, b, c, got, strict=True):
        want = exactly_rounded(
            Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), np.float16
        )
        assert float(r) == want


def test_min_max_of_a_number_and_nan():
    a, b = np.full(32, np.nan, np.float32), np.arange(32, dtype=np.float32)
    assert (run_instruction("max.f32 {d}, {0}, {1}", [a, b], "f4") == b).all()
    assert np.isnan(run_instruction("min.NaN.f32 {d}, {0}, {1}", [a, b], "f4")).all()


def test_moves_pack_and_unpack():
    rng = np.random.default_rng(11)
    a, b = integers(rng, 32), integers(rng, 32)
    packed = run_instruction("mov.b64 {d}, {{{0}, {1}}}", [a, b], "u8")
    assert [int(z) for z in packed] == [int(x) | int(y) << 32 for x, y in zip(a, b, strict=True)]
    high = run_instruction("mov.b64 {{_, {d}}}, {0}", [packed], "u4")
    assert (high == b).all()
    h = run_instruction("mov.b32 {{{d}, _}}, {0}", [a], "u2")
    assert (h == (a & 0xFFFF)).all()
    # A round trip through a wider register, whose source changes half way.
    text = "mov.b64 %d50, {{{0}, {1}}};\nadd.s32 {0}, {0}, 1;\nmov.b64 {{%r50, %r51}}, %d50;\n"
    assert (run_instruction(text + "mov.b32 {d}, %r50", [a, b], "u4") == a).all()
    text = "mov.b64 %d50, {{{0}, {1}}};\nmov.b64 {{{1}, {0}}}, %d50;\nmov.b32 {d}, {0}"
    assert (run_instruction(text, [a, b], "u4") == b).all()


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """Source lane and predicate, from the pseudocode of shfl.sync in the ISA."""
    segment, clamp = c >> 8 & 31, c & 31
    maximum, minimum = lane & segment | clamp & ~segment & 31, lane & segment
    j, inside = {
        "up": lambda: (lane - b, lane - b >= maximum),
        "down": lambda: (lane + b, lane + b <= maximum),
        "bfly": lambda: (lane ^ b, lane ^ b <= maximum),
        "idx": lambda: (minimum | b & ~segment & 31, (minimum | b & ~segment & 31) <= maximum),
    }[mode]()
    return (j if inside else lane), inside


@pytest.mark.parametrize(
    "mode,c",
    [
        ("idx", 31),
        ("idx", 0x181F),
        ("up", 0),
        ("down", 31),
        ("bfly", 31),
        ("down", 0x1807),
        ("up", 0x1800),
    ],
)
def test_shuffles(mode, c):
    rng = np.random.default_rng(12)
    a, b = integers(rng, 32), rng.integers(0, 32, 32).astype(np.uint32)
    values = run_instruction(f"shfl.sync.{mode}.b32 {{d}}, {{0}}, {{1}}, {c}, -1", [a, b], "u4")
    inside = run_instruction(
        f"shfl.sync.{mode}.b32 %r50|{{d}}, {{0}}, {{1}}, {c}, -1", [a, b], bool
    )
    for lane in range(32):
        source, want = shuffled(mode, lane, int(b[lane]), c)
        assert inside[lane] == want
        assert values[lane] == a[source]


def test_votes_and_election():
    rng = np.random.default_rng(13)
    p = rng.integers(0, 2, 32).astype(bool)
    ballot = sum(1 << i for i in range(32) if p[i])
    assert (run_instruction("vote.sync.ballot.b32 {d}, {0}, -1", [p], "u4") == ballot).all()
    assert run_instruction("vote.sync.any.pred {d}, {0}, -1", [p], bool).all() == p.any()
    assert run_instruction("vote.sync.all.pred {d}, {0}, -1", [p], bool).any() == p.all()
    elected = run_instruction("elect.sync %r50|{d}, -1", [], bool)
    assert elected[0] and elected.sum() == 1


def test_special_registers():
    out = np.zeros((6, 2, 64), np.uint32)
    body = """
    ld.param.b64 %d1, [p0];
    mov.u32 %r1, %tid.x;  mov.u32 %r2, %ctaid.x;  mov.u32 %r3, %ctaid.y;  mov.u32 %r4, %nctaid.x;
    mad.lo.s32 %r5, %r3, %r4, %r2;
    mov.u32 %r6, %ntid.x;
    mad.lo.s32 %r7, %r5, 128, %r1;
    mad.wide.u32 %d2, %r7, 4, %d1;
    mov.u32 %r8, %laneid;  mov.u32 %r9, %warpid;
    mad.lo.s32 %r10, %r9, 100, %r8;
    mad.lo.s32 %r11, %r5, 1000, %r10;
    st.global.b32 [%d2], %r11;
    st.global.b32 [%d2+256], %r6;
    """
    run(kernel(body, params=["u64"], threads=64), out, grid=(3, 2, 1))
    thread = np.arange(64)
    want = np.arange(6)[:, None] * 1000 + thread // 32 * 100 + thread % 32
    assert (out[:, 0] == want).all() and (out[:, 1] == 64).all()


@pytest.mark.parametrize(
    "text,message",
    [
        ("add.s32 {d}, {0}", "2 operands"),
        ("add.sat.s32 {d}, {0}, {0}", "sat"),
        ("add.f64 {d}, {0}, {0}", "used as .f64"),
        ("cvt.rn.e4m3x2.f32 {d}, {0}, {0}", "none of"),
        ("shfl.sync.idx.b32 {d}, {0}, 0, 31, 1", "member mask"),
        ("mov.u32 {d}, %clock", "%clock"),
        ("popc.b32 {d}, {0}", "unknown instruction popc"),
    ],
)
def test_what_is_not_modelled_is_refused(text, message):
    with pytest.raises(UnsupportedPtx, match=message):
        run_instruction(text, [np.zeros(32, np.uint32)], "u4")


def test_not_a_number_and_signed_zeros_as_on_the_hardware():
    nans = np.array([0x7FC00001, 0xFF800001] * 16, np.uint32).view(np.float32)
    ones, zeros = np.ones(32, np.float32), np.zeros(32, np.float32)
    for text in ("add.f32 {d}, {0}, {1}", "max.NaN.f32 {d}, {1}, {0}", "mul.f32 {d}, {1}, {0}"):
        assert (run_instruction(text, [nans, ones], np.uint32) == 0x7FFFFFFF).all()
    assert (run_instruction("min.f32 {d}, {0}, {1}", [nans, ones], np.float32) == 1).all()
    assert (run_instruction("cvt.rn.f16.f32 {d}, {0}", [nans], np.uint16) == 0x7FFF).all()
    assert (run_instruction("cvt.rni.s64.f32 {d}, {0}", [nans], np.uint64) == 1 << 63).all()
    for first, second in ((zeros, -zeros), (-zeros, zeros)):
        low = run_instruction("min.f32 {d}, {0}, {1}", [first, second], np.float32)
        high = run_instruction("max.f32 {d}, {0}, {1}", [first, second], np.float32)
        assert np.signbit(low).all() and not np.signbit(high).any()

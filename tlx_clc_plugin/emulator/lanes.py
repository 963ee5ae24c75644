"""Semantics of arithmetic on the 32 lanes of a warp, where numpy's own operators do not do.

A value is an array of 32 elements, one a lane; packed types have 64. References are to the
instructions of the PTX ISA. Called by the code that :mod:`.alu` generates.
"""

from __future__ import annotations

import numpy as np

WARP_LANES = 32
LANE = np.arange(WARP_LANES, dtype=np.uint32)
ALL_LANES = np.arange(WARP_LANES)
LEADER = LANE == 0  # what elect.sync chooses


def div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div of integers, truncating. By zero: all ones, as GPUs give (unspecified by the ISA)."""
    if a.dtype.kind == "u":
        quotient = a // b
    else:
        quotient = (a - np.fmod(a, b)) // b
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """rem: the remainder with the sign of ``a``. By zero: ``a`` (unspecified by the ISA)."""
    return np.where(b == 0, a, np.fmod(a, b))


def mul_hi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """mul.hi of 16, 32 or 64-bit integers: the upper half of the product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
        return (a.astype(wide) * b.astype(wide) >> bits).astype(a.dtype)
    return (a.astype(object) * b.astype(object) >> bits).astype(a.dtype)


def shl(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """shl: amounts of the width and more give zero."""
    bits = a.dtype.itemsize * 8
    return np.where(amount < bits, a << np.minimum(amount, bits - 1).astype(a.dtype), 0).astype(
        a.dtype
    )


def shr(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """shr: amounts of the width and more shift everything out, signs in for signed ``a``."""
    bits = a.dtype.itemsize * 8
    shifted = a >> np.minimum(amount, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(amount < bits, shifted, 0).astype(a.dtype)


def funnel(lo: np.ndarray, hi: np.ndarray, amount: np.ndarray, left: bool, clamp: bool):
    """shf.l and shf.r: 32 bits out of the 64 of hi:lo."""
    amount = (np.minimum(amount, 32) if clamp else amount & 31).astype(np.uint64)
    both = hi.astype(np.uint64) << np.uint64(32) | lo
    return (both << amount >> np.uint64(32) if left else both >> amount).astype(np.uint32)


def bfe(a: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    """bfe: ``length`` bits of ``a`` from ``position`` on, sign-extended for signed ``a``."""
    bits = a.dtype.itemsize * 8
    position, length = position & 0xFF, length & 0xFF
    if a.dtype.kind == "u":
        mask = shl(np.ones_like(a), length) - a.dtype.type(1)
        return shr(a, position) & mask
    # The sign is bit position + length - 1, or the top bit where the field reaches beyond it.
    kept = np.minimum(length, np.where(position < bits, bits - np.minimum(position, bits), 0))
    left = np.where(kept > 0, bits - kept, 0)
    field = shr(shl(shr(a, position), left), left)
    sign = shr(a, np.full_like(position, bits - 1))
    return np.where(length == 0, 0, np.where(kept == 0, sign, field)).astype(a.dtype)


def bfi(a: np.ndarray, b: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    """bfi: ``b`` with ``length`` bits from ``position`` on replaced by the lowest of ``a``."""
    position, length = position & 0xFF, length & 0xFF
    mask = shl(shl(np.ones_like(a), length) - a.dtype.type(1), position)
    return b & ~mask | shl(a, position) & mask


def prmt(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """prmt.b32 in its default mode: any four of the eight bytes b:a, or their replicated sign."""
    choices = np.concatenate([a.view(np.uint8).reshape(-1, 4), b.view(np.uint8).reshape(-1, 4)], 1)
    nibbles = selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & np.uint32(15)
    picked = np.take_along_axis(choices, (nibbles & 7).astype(np.intp), 1)
    signs = np.where(picked & 0x80, np.uint8(0xFF), np.uint8(0))
    return np.where(nibbles & 8, signs, picked).astype(np.uint8).view(np.uint32)[:, 0]


def lop3(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: int) -> np.ndarray:
    """lop3.b32: any function of three bits; bit 4a+2b+c of ``table`` is its value."""
    result = np.zeros_like(a)
    for i in range(8):
        if table >> i & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result


def shuffle(mode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray):
    """shfl.sync with all lanes taking part: the values and whether each came from in range."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last = LANE & segment | clamp & ~segment
    if mode == "idx":
        lane = (LANE & segment | b & ~segment & 31).astype(np.intp)
    elif mode == "bfly":
        lane = (LANE ^ b).astype(np.intp)
    else:
        lane = LANE.astype(np.intp) + (b.astype(np.intp) if mode == "down" else -b.astype(np.intp))
    inside = lane >= last if mode == "up" else lane <= last
    return a[np.where(inside, lane, LANE)], inside


# The NaN that arithmetic in single and half precision gives, whatever the operands' payload (PTX
# ISA, "Floating Point Instructions"); of bf16, round_bf16 takes care.
_NAN = {
    2: np.array(0x7FFF, np.uint16).view(np.float16),
    4: np.array(0x7FFFFFFF, np.uint32).view(np.float32),
}


def canonical(a: np.ndarray) -> np.ndarray:
    """``a``, fp16 or fp32, with every NaN as the hardware has it."""
    nan = np.isnan(a)
    return np.where(nan, _NAN[a.itemsize], a) if nan.any() else a


def extremum(name: str, propagate: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """min or max of floating point; of a number and a NaN the number, unless ``propagate``."""
    result = getattr(np, f"{name}imum" if propagate else f"f{name}")(a, b)
    equal = a == b
    if equal.any():  # zeros may differ in sign: -0 is the smaller one
        bits = f"u{a.itemsize}"
        a, b = a.view(bits), b.view(bits)
        result = np.where(equal, (a | b if name == "min" else a & b).view(result.dtype), result)
    return result


def widen_bf16(a: np.ndarray) -> np.ndarray:
    """bf16 as uint16 to fp32."""
    return (a.astype(np.uint32) << 16).view(np.float32)


def round_bf16(a: np.ndarray) -> np.ndarray:
    """fp32 to bf16 as uint16, to nearest even; any NaN becomes 0x7FFF (cvt.rn.bf16.f32)."""
    bits = a.view(np.uint32)
    rounded = bits + (bits >> 16 & 1) + 0x7FFF >> 16
    return np.where(np.isnan(a), 0x7FFF, rounded).astype(np.uint16)


def truncate_bf16(a: np.ndarray) -> np.ndarray:
    """fp32 to bf16 as uint16, toward zero (cvt.rz.bf16.f32)."""
    return np.where(np.isnan(a), 0x7FFF, a.view(np.uint32) >> 16).astype(np.uint16)


def truncate_f16(a: np.ndarray) -> np.ndarray:
    """fp32 to fp16, toward zero (cvt.rz.f16.f32)."""
    nearest = canonical(a.astype(np.float16))
    too_far = np.abs(nearest.astype(np.float32)) > np.abs(a)
    return np.where(too_far & ~np.isinf(a), np.nextafter(nearest, np.float16(0)), nearest)


def float_to_int(a: np.ndarray, mode: str, kind: str) -> np.ndarray:
    """cvt from floating point to the integer dtype ``kind``: rounded and clamped.

    NaN becomes zero, in 64 bits the top bit alone (CUDA Math API, __float2ll_rn).
    """
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](
        a.astype(np.float64)
    )
    limits = np.iinfo(kind)
    low, high = rounded <= limits.min, rounded >= limits.max
    middle = np.where(low | high | np.isnan(rounded), 0, rounded).astype(kind)
    if limits.bits == 64:
        middle = np.where(np.isnan(rounded), np.array(1 << 63, "u8").astype(kind), middle)
    return np.where(low, limits.min, np.where(high, limits.max, middle)).astype(kind)


def int_to_int(a: np.ndarray, kind: str, saturate: bool) -> np.ndarray:
    """cvt between integers: extended by the source's sign, truncated or clamped."""
    if saturate:
        limits, own = np.iinfo(kind), np.iinfo(a.dtype)
        a = np.clip(a, max(limits.min, own.min), min(limits.max, own.max))
    return a.astype(kind)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """fma.rn of values up to fp32, to be rounded to their type: a * b + c rounded to odd in fp64.

    The product is exact in fp64. Rounding the sum to odd keeps a second rounding, to 24 bits or
    fewer, right (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + toward, bits).view(np.float64)


def pack(*parts: np.ndarray) -> np.ndarray:
    """Parts of a wider register, least significant first, joined: unsigned of the sum's width."""
    size = parts[0].dtype.itemsize
    joined = np.empty((WARP_LANES, len(parts)), parts[0].dtype)
    for i, part in enumerate(parts):
        joined[:, i] = part
    return joined.view(f"u{size * len(parts)}").reshape(WARP_LANES)


def unpack(a: np.ndarray, count: int) -> list[np.ndarray]:
    """The reverse of :func:`pack`: ``count`` parts, least significant first."""
    parts = a.view(f"u{a.dtype.itemsize // count}")
    return [parts[i::count].copy() for i in range(count)]


def pack_f16(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """cvt.rn.f16x2.f32."""
    joined = np.empty((WARP_LANES, 2), np.float16)
    joined[:, 0] = low
    joined[:, 1] = high
    return canonical(joined).view(np.uint32).reshape(WARP_LANES)

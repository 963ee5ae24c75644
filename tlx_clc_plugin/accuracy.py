"""Is a 16-bit matrix product right? Judged against float64, element by element.

A right result is a rounding of *some* sum that fp32 accumulation may reach. So, for each output
element c, take all reals that round to c: an interval one spacing of the output format wide,
subnormals and infinity included. The element is right if the float64 reference lies within E of
that interval, where E bounds the error of the accumulation alone. The output's own, far larger,
rounding costs no sensitivity. With u = 2**-24, unit roundoff of fp32, and p_k bounding the
partial sum after k products,

    E = u * (6 * sum(p_k over every 16th k) + 6 * sqrt(sum(p_k**2))) + K * 2**-149

* First term: bias of tensor cores. Those of H100 and B200 add 16 products to the accumulator at
  once, align all 17 terms to the largest, keep two bits below fp32's last and truncate; the sum
  is truncated again (Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores",
  arXiv:2512.07004, models H100TC and B200TC). That loses less than (17/4 + 1) * 2**-23 = 10.5 u of
  the largest term, half of it on average, and always towards zero: it grows with K, not with
  sqrt(K). 6 u instead of 5.25 u leaves room for equal inputs, whose losses repeat.
* Second term: what is random in it, and the rounding to nearest of other hardware, errors below
  u * p_k with mean zero. By Azuma's inequality the sum of K of them exceeds
  lambda * u * sqrt(sum(p_k**2)) with a probability below 2 exp(-lambda**2 / 2) (Higham and Mary,
  SIAM J. Sci. Comput. 41(5), 2019; by partial sums: Hallman and Ipsen, Numer. Math. 155, 2023).
  That presumes errors of full size; spread evenly, they make lambda = 6 ten standard deviations.
* Last term: gradual underflow of bf16 products. All other products are exact in fp32.

p_k comes from |A||B| by slices of 256 along K, in ascending order, as GEMMs add them up:
p_k = |sum up to the slice| + |A||B| of the slice. Subnormal inputs count as the smallest normal
number, which is how tensor cores align them. So, these aside, E <= u * (0.4 K + 6 sqrt(K)) |A||B|;
with random signs it is smaller by up to sqrt(K), which keeps an output scaled by 1.01 visible at
K = 65536. The classical K * u * |A||B| would hide a missing block of K there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

DTYPES = (torch.float16, torch.bfloat16)
_U32 = 2.0**-24
_FLOAT_MAX = torch.finfo(torch.float32).max
_BIAS, _STEP = 6.0, 16
_LAMBDA = 6.0
_SLICE = 256
# Rows and columns taken at a time: bounds the float64 temporaries.
_BLOCK = 2048


@dataclass(frozen=True)
class Accuracy:
    """The verdict of :func:`check`.

    ``error``: the accumulation error that explains the worst element, as a share of what is
    allowed: 0 for correctly rounded results, at most 1 where ``ok``, unitless. ``index``: row and
    column of the worst element where not ``ok``. ``reason``: what is wrong, in words; empty where
    ``ok``.
    """

    ok: bool
    error: float
    index: tuple[int, int] | None = None
    reason: str = ""


@torch.no_grad()
def check(
    actual: object, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None
) -> Accuracy:
    """Judge ``actual`` as the product ``a @ b`` (``+ bias``) accumulated in fp32.

    ``a``: (M, K), ``b``: (K, N), ``bias``: (N,), all float16 or all bfloat16, on one device, where
    the float64 reference is computed too. ``actual`` should have their type and device, and shape
    (M, N); what it is instead is a verdict, not an exception. The bias may have been added before
    the one rounding or, as ``torch.matmul(a, b) + bias`` does, after a first one, so half a
    spacing of the product is allowed on top. Infinities and NaN must be where the reference has
    them, or where it overflows.

    Raises TypeError or ValueError if ``a``, ``b`` and ``bias`` don't fit together.
    """
    _check_inputs(a, b, bias)
    (M, _), N = a.shape, b.shape[1]
    if mismatch := _mismatch(actual, (M, N), a):
        return Accuracy(False, math.inf, reason=mismatch)
    errors = torch.zeros((M, N), device=a.device)
    for rows, columns in _blocks(M, N):
        exact, bound, largest = _reference(a[rows], b[:, columns])
        rounding = 0.0
        if bias is not None:
            rounding = _half_spacing(exact.abs() + bound, a.dtype)
            exact = exact + bias[columns].double()
        got = actual[rows, columns].double()
        errors[rows, columns] = _errors(got, exact, bound, largest, rounding, a.dtype)
    if errors.numel() == 0 or errors.max() <= 1:
        return Accuracy(True, errors.max().item() if errors.numel() else 0.0)
    return _inaccurate(errors, actual, a, b, bias)


def _reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``a @ b`` in float64, the bound E of its error in fp32, and the largest p_k."""
    K = a.shape[1]
    total = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float64, device=a.device)
    linear, squares, largest = (torch.zeros_like(total) for _ in range(3))
    for start in range(0, K, _SLICE):
        a_slice, b_slice = a[:, start : start + _SLICE], b[start : start + _SLICE]
        length = len(b_slice)
        partial = total.abs() + _aligned(a_slice) @ _aligned(b_slice)
        total += a_slice.double() @ b_slice.double()
        linear += math.ceil(length / _STEP) * partial
        # The first product is exact.
        squares += (length - (start == 0)) * partial**2
        largest = torch.maximum(largest, partial)
    # A single product is exact, whatever the hardware.
    bias = _BIAS if K > 1 else 0.0
    bound = _U32 * (bias * linear + _LAMBDA * squares.sqrt()) + K * 2.0**-149
    return total, bound, largest


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """Magnitudes in float64 as tensor cores align them: subnormals at the exponent they share."""
    magnitude = x.double().abs()
    return torch.where(x == 0, 0.0, magnitude.clamp(min=torch.finfo(x.dtype).smallest_normal))


def _errors(
    got: torch.Tensor,
    exact: torch.Tensor,
    bound: torch.Tensor,
    largest: torch.Tensor,
    rounding: torch.Tensor | float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """How far ``exact`` is from the reals that round to ``got``, as a multiple of ``bound``.

    ``rounding``: half-width of an earlier rounding, allowed on top.
    """
    finfo = torch.finfo(dtype)
    magnitude = got.abs().clamp(max=finfo.max)
    # The spacing halves below a power of two.
    inner = magnitude - _half_spacing(magnitude * (1 - 2.0**-40), dtype)
    outer = magnitude + _half_spacing(magnitude, dtype)
    overflow = got.isinf()
    inner, outer = torch.where(overflow, outer, inner), torch.where(overflow, math.inf, outer)
    signed = torch.where(got < 0, -exact, exact)
    distance = torch.maximum(inner - signed, signed - outer) - rounding
    error = distance.clamp(min=0) / bound

    same = (got == exact) | (got.isnan() & exact.isnan())
    # Partial sums that overflow fp32 leave an infinity, or NaN.
    excused = exact.isfinite() & (largest > _FLOAT_MAX) & ~got.isfinite()
    error = torch.where(same | excused, 0.0, error)
    return error.nan_to_num(nan=math.inf, posinf=math.inf)


def _half_spacing(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half the distance to the next larger number of ``dtype``, at non-negative float64s."""
    finfo = torch.finfo(dtype)
    normal = magnitude.clamp(min=finfo.smallest_normal)
    mantissa, _ = torch.frexp(normal)
    return torch.where(magnitude > finfo.max, math.inf, normal / mantissa * (finfo.eps / 4))


def _inaccurate(
    errors: torch.Tensor,
    actual: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
) -> Accuracy:
    """The verdict on an output with errors above 1: the worst element, and where the others lie."""
    N = errors.shape[1]
    row, column = divmod(int(errors.argmax()), N)
    expected = a[row].double() @ b[:, column].double()
    if bias is not None:
        expected = expected + bias[column].double()
    wrong = (errors > 1).nonzero()
    (top, left), (bottom, right) = wrong.amin(0).tolist(), wrong.amax(0).tolist()
    error = errors[row, column].item()
    return Accuracy(
        False,
        error,
        (row, column),
        f"error {error:.3g} times the bound at [{row}, {column}]: got "
        f"{actual[row, column].item():.6g}, expected {expected.item():.6g}; "
        f"{len(wrong)} of {errors.numel()} elements wrong, "
        f"in rows {top}..{bottom}, columns {left}..{right}",
    )


def _check_inputs(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> None:
    if a.dtype not in DTYPES:
        raise TypeError(f"a must be float16 or bfloat16, got {a.dtype}")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a and b must be (M, K) and (K, N), got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    for name, x in (("b", b), ("bias", bias)):
        if x is not None and (x.dtype, x.device) != (a.dtype, a.device):
            raise TypeError(
                f"{name} must be {a.dtype} on {a.device} as a is, got {x.dtype} on {x.device}"
            )
    if bias is not None and bias.shape != (b.shape[1],):
        raise ValueError(f"bias must have length N = {b.shape[1]}, got {tuple(bias.shape)}")


def _mismatch(actual: object, shape: tuple[int, int], a: torch.Tensor) -> str:
    """Why ``actual`` can't be the product at all, in words; empty if it can."""
    if not isinstance(actual, torch.Tensor):
        return f"got {type(actual).__name__}, not a tensor"
    if actual.shape != shape:
        return f"got shape {tuple(actual.shape)}, expected {shape}"
    if actual.dtype != a.dtype:
        return f"got {actual.dtype}, expected {a.dtype}"
    if actual.device != a.device:
        return f"got a tensor on {actual.device}, expected {a.device}"
    return ""


def _blocks(M: int, N: int) -> Iterator[tuple[slice, slice]]:
    for row in range(0, M, _BLOCK):
        for column in range(0, N, _BLOCK):
            yield slice(row, row + _BLOCK), slice(column, column + _BLOCK)

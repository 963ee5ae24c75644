"""Decoders of wgmma: tensor cores with accumulators in registers."""

from __future__ import annotations

from .errors import UnsupportedPtx
from .modifiers import Modifiers
from .operands import Body, Operands, converged
from .ptx import Vector
from .warp import Signal, Warp
from .wgmma import WARPS, Shape, Warpgroup

_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}


def _group(warp: Warp) -> Warpgroup:
    groups, number = warp.cta.warpgroups, warp.index // WARPS
    if number not in groups:
        if WARPS * (number + 1) > len(warp.cta.warps):
            raise UnsupportedPtx(f"wgmma by {warp}, which is in no whole warpgroup")
        groups[number] = Warpgroup(warp.cta)
    return groups[number]


def _sync_aligned(m: Modifiers) -> None:
    m.take(("sync",))
    m.take(("aligned",))


def _fence(m: Modifiers, ops: Operands) -> Body:
    _sync_aligned(m)
    ops.count(0)

    def body(warp, lanes):
        converged(lanes)
        _group(warp).fence(warp)

    return body


def _commit(m: Modifiers, ops: Operands) -> Body:
    _sync_aligned(m)
    ops.count(0)

    def body(warp, lanes):
        converged(lanes)
        _group(warp).commit(warp)

    return body


def _wait(m: Modifiers, ops: Operands) -> Body:
    _sync_aligned(m)
    (newest,) = ops.count(1)
    newest = ops.constant(newest)

    def body(warp, lanes):
        converged(lanes)
        return _group(warp).wait(warp, newest)

    return body


def _mma(m: Modifiers, ops: Operands) -> Body:
    """d, a, b, scale-d, sign of A, of B, and for 16-bit types major mode of A if no register, of B.

    Modelled with an fp32 accumulator, for the types of ``_K``.
    """
    _sync_aligned(m)
    opcode = ops.instruction.opcode.split(".")
    shape, d_type, a_type, b_type = opcode[4:8]
    for part in opcode[4:8]:
        m.flag(part)
    if d_type != "f32" or a_type not in _K or b_type not in _K or _K[a_type] != _K[b_type]:
        raise UnsupportedPtx(f"wgmma.mma_async with types {d_type}, {a_type}, {b_type}")
    n, suffix = int(shape[4:].split("k")[0]), f"k{_K[a_type]}"
    if shape != f"m64n{n}{suffix}" or n % 8 or not 8 <= n <= 256:
        raise UnsupportedPtx(f"wgmma.mma_async of shape {shape}")
    from_registers = isinstance(ops.instruction.operands[1], Vector)
    majors = (1 if from_registers else 2) if _K[a_type] == 16 else 0
    d, a, b, scale, *constants = ops.count(6 + majors)
    a_sign, b_sign, *major = (ops.constant(x) for x in constants)
    if {a_sign, b_sign} - {1, -1} or set(major) - {0, 1}:
        raise UnsupportedPtx(f"signs {a_sign}, {b_sign} and major modes {major} of wgmma")
    transpose_a = bool(major[0]) if majors == 2 else False
    transpose_b = bool(major[-1]) if majors else False
    shape = Shape(n, a_type, b_type, a_sign, b_sign, transpose_a, transpose_b)
    d = tuple(ops.register(x) for x in ops.elements(d))
    if len(d) != n // 2:
        raise UnsupportedPtx(f"{len(d)} accumulators of a {shape}")
    if from_registers:
        numbers = tuple(ops.register(x, "b32") for x in ops.elements(a))
        if len(numbers) != 4:
            raise UnsupportedPtx(f"{len(numbers)} registers of A")
    else:
        a = ops.scalar(a, 8)
    b, scale = ops.scalar(b, 8), ops.predicate(scale)

    def body(warp, lanes):
        converged(lanes)
        _group(warp).issue(
            warp,
            ops.instruction,
            shape,
            d,
            numbers if from_registers else a(warp, lanes),
            b(warp, lanes),
            scale(warp, lanes),
        )
        return Signal.YIELD

    return body


DECODERS = {
    "wgmma.fence": _fence,
    "wgmma.mma_async": _mma,
    "wgmma.commit_group": _commit,
    "wgmma.wait_group": _wait,
}

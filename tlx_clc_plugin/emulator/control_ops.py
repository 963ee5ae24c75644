"""Decoders of control flow, and of instructions that the emulator has nothing to do for."""

from __future__ import annotations

from .errors import ProtocolError, UnsupportedPtx
from .modifiers import Modifiers
from .operands import Body, Operands, converged
from .ptx import Label
from .warp import Signal


def _branch(m: Modifiers, ops: Operands) -> Body:
    m.flag("uni")
    (label,) = ops.count(1)
    (target,) = _targets(label)

    def body(warp, lanes):
        converged(lanes)
        return target

    return body


def _indexed_branch(m: Modifiers, ops: Operands) -> Body:
    m.take(("idx",))
    m.flag("uni")
    operand, table = ops.count(2)
    index, targets = ops.scalar(operand), _targets(table)

    def body(warp, lanes):
        converged(lanes)
        i = index(warp, lanes)
        if i >= len(targets):
            raise ProtocolError(f"brx.idx with index {i} into {len(targets)} targets")
        return targets[i]

    return body


def _targets(label: object) -> tuple[int, ...]:
    if not isinstance(label, Label):
        raise UnsupportedPtx(f"branch target {label}")
    return label.targets


def _exit(m: Modifiers, ops: Operands) -> Body:
    m.flag("uni")
    ops.count(0)

    def body(warp, lanes):
        converged(lanes)
        return Signal.EXIT

    return body


def _nothing(m: Modifiers, ops: Operands) -> Body:
    """Performance hints, and fences: memory is sequentially consistent here."""
    m.flag(*_IGNORED)
    return lambda warp, lanes: None


_IGNORED = (
    *("inc", "dec", "sync", "aligned", "u32", "b32", "wait", "launch_dependents"),
    *("proxy", "async", "async::generic", "alias", "tensormap::generic", "global", "shared::cta"),
    *("shared::cluster", "acq_rel", "sc", "acquire", "release", "cta", "cluster", "gpu", "sys"),
    *("mbarrier_init", "sync_restrict::shared::cta", "sync_restrict::shared::cluster", "gl"),
    *("fence::before_thread_sync", "fence::after_thread_sync"),
)

# By opcode; the branch targets are of instructions, which decode.py maps to steps.
DECODERS = {
    "bra": _branch,
    "brx": _indexed_branch,
    "ret": _exit,
    "exit": _exit,
    **dict.fromkeys(
        (
            "setmaxnreg",
            "griddepcontrol",
            "nanosleep",
            "fence",
            "membar",
            "tcgen05.fence::before_thread_sync",
            "tcgen05.fence::after_thread_sync",
        ),
        _nothing,
    ),
}

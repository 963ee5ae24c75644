"""Decoders of atom and red: a word of memory is read, changed and written by one lane at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .codegen import DTYPES
from .lanes import round_bf16, widen_bf16
from .memory_ops import ORDERINGS, space
from .modifiers import CACHE_HINTS, Modifiers
from .operands import Body, Operands
from .ptx import Sink
from .warp import Signal

_INTEGERS = ("u32", "s32", "u64", "s64")
_BITS = ("b32", "b64")
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")


def _increment(old, limit):
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _decrement(old, limit):
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


# By name: the function of the old value and the operand, and the types (PTX ISA, "atom").
_OPERATIONS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "add": (np.add, (*_INTEGERS, *_FLOATS)),
    "min": (np.minimum, _INTEGERS),
    "max": (np.maximum, _INTEGERS),
    "inc": (_increment, ("u32",)),
    "dec": (_decrement, ("u32",)),
    "and": (np.bitwise_and, _BITS),
    "or": (np.bitwise_or, _BITS),
    "xor": (np.bitwise_xor, _BITS),
    "exch": (lambda old, new: new, _BITS),
    "cas": (None, ("b16", *_BITS)),
}


def combine(operation: str, kind: str, old: np.ndarray, operand: np.ndarray) -> np.ndarray:
    """The new bytes of a word, from its old ones and the operand's; uint8 arrays."""
    function, dtype = _OPERATIONS[operation][0], DTYPES[kind]
    if kind.startswith("bf16"):
        old, operand = (widen_bf16(x.view(np.uint16)) for x in (old, operand))
        return round_bf16(function(old, operand)).view(np.uint8)
    return function(old.view(dtype), operand.view(dtype)).astype(dtype).view(np.uint8)


def _atomic(returns: bool):
    def decode(m: Modifiers, ops: Operands) -> Body:
        hinted = m.flag("L2::cache_hint")
        m.flag(*CACHE_HINTS, *ORDERINGS, "acq_rel", "noftz")
        memory = space(m)
        operation = m.take(_OPERATIONS)
        kind = m.take(_OPERATIONS[operation][1])
        nbytes = np.dtype(DTYPES[kind]).itemsize * (2 if kind.endswith("x2") else 1)
        operands = ops.count(returns + 2 + (operation == "cas") + hinted)
        result = operands[0] if returns else Sink()
        target, *sources = operands[returns : len(operands) - hinted]
        write, address = ops.destination(result), ops.address(target)
        sources = [ops.values(source, nbytes) for source in sources]

        def body(warp, lanes):
            where = address(warp)
            values = [source(warp).view(np.uint8).reshape(32, nbytes) for source in sources]
            before = np.empty((len(lanes), nbytes), np.uint8)
            for i, lane in enumerate(lanes):
                at = where[lane : lane + 1]
                old = memory(warp.cta).load(at, nbytes)[0].copy()
                if operation == "cas":
                    new = values[1][lane] if (old == values[0][lane]).all() else old
                else:
                    new = combine(operation, kind, old, values[0][lane].copy())
                memory(warp.cta).store(at, new[None, :])
                before[i] = old
            write(warp, lanes, before.view(f"u{nbytes}")[:, 0])
            return Signal.YIELD

        return body

    return decode


DECODERS = {"atom": _atomic(returns=True), "red": _atomic(returns=False)}

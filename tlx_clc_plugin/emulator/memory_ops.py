"""Decoders of loads and stores by the warp itself, and of the groups of cp.async."""

from __future__ import annotations

import numpy as np

from .errors import UnsupportedPtx
from .lanes import ALL_LANES, WARP_LANES
from .modifiers import CACHE_HINTS, Modifiers
from .operands import Body, Operands, converged
from .ptx import SCALAR_BYTES
from .warp import Cta, Signal

ORDERINGS = ("volatile", "relaxed", "acquire", "release", "cta", "cluster", "gpu", "sys")
_TYPES = tuple(kind for kind in SCALAR_BYTES if not kind.endswith("128")) + ("b128",)


def space(m: Modifiers):
    """The memory that an access goes to, as a function of the CTA."""
    space = m.take(("shared", "shared::cta", "global"))
    if space == "global":
        return lambda cta: cta.grid.memory
    return lambda cta: cta.shared


def _access(m: Modifiers, ops: Operands, extra: int = 0):
    """What ld and st share: memory, type and number of elements."""
    hinted = m.flag("L2::cache_hint")
    m.flag(*CACHE_HINTS, *ORDERINGS)
    memory = space(m)
    count = int(m.take(("v2", "v4", "v8"), default="v1")[1:])
    kind = m.take(_TYPES)
    operands = ops.count(2 + hinted)
    return memory, kind, count, operands[:2]


def _load(m: Modifiers, ops: Operands) -> Body:
    memory, kind, count, (destination, source) = _access(m, ops)
    address, nbytes = ops.address(source), SCALAR_BYTES[kind]
    if kind == "b128":
        return _load_128(memory, ops.register(destination, "b128"), address)
    registers = ops.elements(destination)
    if len(registers) != count:
        raise UnsupportedPtx(f"{len(registers)} destinations of a load of {count}")
    writes = [ops.destination(register) for register in registers]
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{nbytes}")

    def body(warp, lanes):
        where = address(warp)
        if lanes is not ALL_LANES:
            where = where[lanes]
        data = memory(warp.cta).load(where, count * nbytes).view(dtype)
        for i, write in enumerate(writes):
            write(warp, lanes, data[:, i])

    return body


def _load_128(memory, number: int, address) -> Body:
    def body(warp, lanes):
        merged = warp.registers[number].copy()
        merged[lanes] = memory(warp.cta).load(address(warp)[lanes], 16)
        warp.registers[number] = merged

    return body


def _store(m: Modifiers, ops: Operands) -> Body:
    memory, kind, count, (target, source) = _access(m, ops)
    address, nbytes = ops.address(target), SCALAR_BYTES[kind]
    if kind == "b128":
        raise UnsupportedPtx("a store of .b128")
    elements = ops.elements(source)
    if len(elements) != count:
        raise UnsupportedPtx(f"{len(elements)} sources of a store of {count}")
    values = [ops.values(element, nbytes) for element in elements]

    def body(warp, lanes):
        data = np.empty((WARP_LANES, count), f"u{nbytes}")
        for i, value in enumerate(values):
            data[:, i] = value(warp)
        where = address(warp)
        if lanes is not ALL_LANES:
            where, data = where[lanes], data[lanes]
        memory(warp.cta).store(where, data.view(np.uint8))

    return body


# Matrices of 8 x 8 elements of 16 bits, in shared memory as 8 rows of 16 bytes whose addresses
# lanes 8i to 8i + 7 give for matrix i. Lane t holds elements 2 (t % 4) and the next of row t / 4,
# or of column t / 4 if transposed (PTX ISA, ldmatrix).


def _matrix_modifiers(m: Modifiers) -> tuple[int, bool]:
    m.take(("sync",))
    m.take(("aligned",))
    m.take(("m8n8",))
    m.take(("shared", "shared::cta"))
    m.take(("b16",))
    return int(m.take(("x1", "x2", "x4"))[1:]), m.flag("trans")


def _load_matrix(m: Modifiers, ops: Operands) -> Body:
    count, transposed = _matrix_modifiers(m)
    destination, source = ops.count(2)
    address = ops.address(source)
    writes = [ops.destination(register) for register in ops.elements(destination)]
    if len(writes) != count:
        raise UnsupportedPtx(f"{len(writes)} destinations of {count} matrices")

    def body(warp, lanes):
        converged(lanes)
        rows = warp.cta.shared.load(address(warp)[: 8 * count], 16)
        for data, write in zip(_fragments(rows, count, transposed), writes, strict=True):
            write(warp, lanes, data)

    return body


def _fragments(rows: np.ndarray, count: int, transposed: bool) -> np.ndarray:
    """Rows of matrices, uint8 (8 count, 16), to what lanes hold of them, uint32 (count, 32)."""
    matrices = rows.view(np.uint16).reshape(count, 8, 8)
    if transposed:
        matrices = np.ascontiguousarray(matrices.swapaxes(1, 2))
    return matrices.view(np.uint32).reshape(count, WARP_LANES)


def _store_matrix(m: Modifiers, ops: Operands) -> Body:
    count, transposed = _matrix_modifiers(m)
    target, source = ops.count(2)
    address = ops.address(target)
    values = [ops.values(register) for register in ops.elements(source)]
    if len(values) != count:
        raise UnsupportedPtx(f"{len(values)} sources of {count} matrices")

    def body(warp, lanes):
        converged(lanes)
        fragments = np.stack([value(warp) for value in values])
        matrices = fragments.view(np.uint16).reshape(count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(1, 2)
        rows = np.ascontiguousarray(matrices).view(np.uint8).reshape(8 * count, 16)
        warp.cta.shared.store(address(warp)[: 8 * count], rows)

    return body


def _commit_copies(m: Modifiers, ops: Operands) -> Body:
    """All copies of a group are carried out at once, by one effect."""
    ops.count(0)

    def body(warp, lanes):
        converged(lanes)
        group, copies = warp.copies.commit(), warp.noted_copies
        warp.noted_copies = []
        if not copies:
            return None
        group.writes = 1

        def apply():
            for nbytes in {copy[0] for copy in copies}:
                parts = [_active(*copy[1:]) for copy in copies if copy[0] == nbytes]
                _copy(warp.cta, nbytes, *map(np.concatenate, zip(*parts, strict=True)))
            group.writes = 0

        warp.cta.issue(ops.instruction, apply)
        return Signal.YIELD

    return body


def _active(guard: np.ndarray | None, *parts: np.ndarray) -> tuple[np.ndarray, ...]:
    return parts if guard is None else tuple(part[guard] for part in parts)


def _copy(cta: Cta, nbytes: int, to: np.ndarray, source: np.ndarray, kept: np.ndarray) -> None:
    """Copy the first ``kept`` of ``nbytes`` bytes from global to shared memory, zero the rest."""
    whole = kept == nbytes
    if whole.all():
        data = cta.grid.memory.load(source, nbytes)
    else:
        data = np.zeros((len(to), nbytes), np.uint8)
        if whole.any():
            data[whole] = cta.grid.memory.load(source[whole], nbytes)
        for i in np.flatnonzero(~whole & (kept != 0)):
            bytewise = source[i] + np.arange(kept[i], dtype=np.uint64)
            data[i, : kept[i]] = cta.grid.memory.load(bytewise, 1)[:, 0]
    cta.shared.store(to, data)


def _wait_for_copies(m: Modifiers, ops: Operands) -> Body:
    (newest,) = ops.count(1)
    count = ops.constant(newest)

    def body(warp, lanes):
        converged(lanes)
        return warp.copies.all_but(count)

    return body


def _wait_for_all_copies(m: Modifiers, ops: Operands) -> Body:
    commit = _commit_copies(m, ops)

    def body(warp, lanes):
        commit(warp, lanes)
        return warp.copies.all_but(0)

    return body


DECODERS = {
    "ld": _load,
    "st": _store,
    "ldmatrix": _load_matrix,
    "stmatrix": _store_matrix,
    "cp.async.commit_group": _commit_copies,
    "cp.async.wait_group": _wait_for_copies,
    "cp.async.wait_all": _wait_for_all_copies,
}

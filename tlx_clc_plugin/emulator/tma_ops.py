"""Decoders of TMA: bulk copies of boxes of tensors."""

from __future__ import annotations

import numpy as np

from .errors import MemoryFault, UnsupportedPtx
from .modifiers import Modifiers
from .operands import Body, Operands
from .ptx import Address
from .report import TmaStore
from .tensormap_ops import read_tensor_map
from .tma import read_global_box, read_shared_box, write_global_box, write_shared_box
from .warp import Signal


def _tensor_copy(m: Modifiers, ops: Operands) -> Body:
    rank = int(m.take([f"{n}d" for n in range(1, 6)])[0])
    m.flag("tile")
    if m.flag("bulk_group"):
        m.take(("global",))
        m.take(("shared::cta",))
        return _tma_store(m, ops, rank)
    m.take(("shared::cta", "shared::cluster"))
    m.take(("global",))
    m.take(("mbarrier::complete_tx::bytes",))
    return _tma_load(m, ops, rank)


def _tensor_operand(ops: Operands, operand: Address, rank: int):
    """Function of warp and lane: the tensor map, and the coordinates."""
    if operand.coordinates is None or len(operand.coordinates.elements) != rank:
        raise UnsupportedPtx(f"tensor operand {operand} of a copy of rank {rank}")
    address = ops.values(operand.base, 8)
    coordinates = [ops.values(x) for x in operand.coordinates.elements]

    def tensor(warp, lane):
        at = tuple(int(np.int32(x(warp)[lane])) for x in coordinates)
        where, grid = int(address(warp)[lane]), warp.cta.grid
        if where in grid.tensor_maps:
            return grid.tensor_maps[where], at
        return read_tensor_map(grid.memory, where), at

    return tensor


def _tma_load(m: Modifiers, ops: Operands, rank: int) -> Body:
    """With a mask: to the same addresses in each CTA of the cluster whose bit is set."""
    hinted, multicast = m.flag("L2::cache_hint"), m.flag("multicast::cluster")
    m.flag("cta_group::1", "cta_group::2")  # where the barrier may be: in any CTA of the cluster
    target, source, barrier, *rest = ops.count(3 + hinted + multicast)
    target, barrier = ops.address(target), ops.address(barrier)
    mask = ops.values(rest[0], 2) if multicast else None
    tensor = _tensor_operand(ops, source, rank)

    def body(warp, lanes):
        cta = warp.cta
        for lane in lanes:
            tensor_map, coords = tensor(warp, lane)
            where, signal = int(target(warp)[lane]), int(barrier(warp)[lane])
            targets = int(mask(warp)[lane]) if multicast else 0

            def apply(
                tensor_map=tensor_map,
                coords=coords,
                where=where,
                signal=signal,
                targets=targets,
            ):
                box = read_global_box(cta.grid.memory, tensor_map, coords)
                cluster = cta.cluster
                for receiver in cluster.multicast(targets) if multicast else (cta,):
                    # An address of a peer stays one; other addresses are the receiver's own.
                    owner, at = cluster.locate(receiver, where)
                    write_shared_box(owner.shared, tensor_map, at, box)
                    owner, at = cluster.locate(receiver, signal)
                    owner.mbarriers.at(at).complete_tx(tensor_map.box_bytes)

            cta.issue(ops.instruction, apply)
        return Signal.YIELD

    return body


def _tma_store(m: Modifiers, ops: Operands, rank: int) -> Body:
    """Two effects: wait_group.read waits for the first, wait_group for the second as well."""
    hinted = m.flag("L2::cache_hint")
    target, source, *_ = ops.count(2 + hinted)
    tensor, source = _tensor_operand(ops, target, rank), ops.address(source)

    def body(warp, lanes):
        cta, group = warp.cta, warp.bulk_copies.open
        for lane in lanes:
            tensor_map, coords = tensor(warp, lane)
            where = int(source(warp)[lane])
            cta.tma_stores.append(TmaStore(tensor_map.base, coords, tensor_map.box))
            group.reads += 1
            group.writes += 1

            def read(tensor_map=tensor_map, coords=coords, where=where):
                box = read_shared_box(cta.shared, tensor_map, where)
                group.reads -= 1

                def write():
                    write_global_box(cta.grid.memory, tensor_map, coords, box)
                    group.writes -= 1

                cta.issue(ops.instruction, write)

            cta.issue(ops.instruction, read)
        return Signal.YIELD

    return body


def _bulk_copy(m: Modifiers, ops: Operands) -> Body:
    """cp.async.bulk of plain bytes, global to shared memory."""
    m.take(("shared::cta", "shared::cluster"))
    m.take(("global",))
    m.take(("mbarrier::complete_tx::bytes",))
    hinted = m.flag("L2::cache_hint")
    target, source, size, barrier, *_ = ops.count(4 + hinted)
    target, source, barrier = (ops.address(x) for x in (target, source, barrier))
    size = ops.values(size)

    def body(warp, lanes):
        cta = warp.cta
        for lane in lanes:
            to, at, nbytes, signal = (int(x(warp)[lane]) for x in (target, source, size, barrier))
            if (to | at | nbytes) % 16:
                raise MemoryFault(
                    f"cp.async.bulk takes multiples of 16, got {nbytes} bytes "
                    f"from {at:#x} to {to:#x}"
                )

            def apply(to=to, at=at, nbytes=nbytes, signal=signal):
                window = cta.grid.memory.window(at)
                first, offset = cta.shared.span(to, nbytes), window.span(at, nbytes)
                cta.shared.data[first : first + nbytes] = window.data[offset : offset + nbytes]
                cta.mbarriers.at(signal).complete_tx(nbytes)

            cta.issue(ops.instruction, apply)
        return Signal.YIELD

    return body


def _commit_bulk(m: Modifiers, ops: Operands) -> Body:
    ops.count(0)

    def body(warp, lanes):
        warp.bulk_copies.commit()

    return body


def _wait_for_bulk(m: Modifiers, ops: Operands) -> Body:
    read_only = m.flag("read")
    (newest,) = ops.count(1)
    count = ops.constant(newest)

    def body(warp, lanes):
        return warp.bulk_copies.all_but(count, read_only=read_only)

    return body


DECODERS = {
    "cp.async.bulk": _bulk_copy,
    "cp.async.bulk.tensor": _tensor_copy,
    "cp.async.bulk.commit_group": _commit_bulk,
    "cp.async.bulk.wait_group": _wait_for_bulk,
}

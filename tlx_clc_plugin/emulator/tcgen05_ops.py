"""Decoders of tcgen05: tensor memory and tensor cores."""

from __future__ import annotations

import numpy as np

from .errors import UnsupportedPtx
from .mma import mma
from .modifiers import Modifiers
from .operands import Body, Operands, converged
from .ptx import Address
from .warp import Signal, Wait

_GROUPS = ("cta_group::1", "cta_group::2")


def _alloc(m: Modifiers, ops: Operands) -> Body:
    _collective(m)
    m.take(("shared::cta",), default="shared::cta")
    m.take(("b32",))
    target, columns = ops.count(2)
    target, columns = ops.scalar_address(target), ops.scalar(columns)

    def body(warp, lanes):
        converged(lanes)
        cta, where, count = warp.cta, target(warp, lanes), columns(warp, lanes)
        address = None

        def allocated() -> bool:
            nonlocal address
            if address is None:
                address = cta.tensor_memory.alloc(count)
                if address is not None:
                    data = np.array([[address]], np.uint32).view(np.uint8)
                    cta.shared.store(np.array([where], np.uint64), data)
            return address is not None

        if allocated():
            return None
        return Wait(allocated, lambda: f"{count} free columns of tensor memory")

    return body


def _dealloc(m: Modifiers, ops: Operands) -> Body:
    _collective(m)
    m.take(("b32",))
    address, columns = ops.count(2)
    address, columns = ops.scalar(address), ops.scalar(columns)

    def body(warp, lanes):
        converged(lanes)
        warp.cta.tensor_memory.dealloc(address(warp, lanes), columns(warp, lanes))

    return body


def _relinquish(m: Modifiers, ops: Operands) -> Body:
    _collective(m)

    def body(warp, lanes):
        converged(lanes)
        warp.cta.tensor_memory.relinquish_alloc_permit()

    return body


def _collective(m: Modifiers) -> None:
    m.take(_GROUPS)  # of two: each CTA of the pair does the same to its own tensor memory
    m.take(("sync",))
    m.take(("aligned",))


def _shape(m: Modifiers) -> int:
    """Registers of a tcgen05.ld or st."""
    m.take(("sync",))
    m.take(("aligned",))
    m.take(("32x32b",))
    m.take(("b32",))
    return int(m.take([f"x{1 << i}" for i in range(8)])[1:])


def _tensor_load(m: Modifiers, ops: Operands) -> Body:
    """Registers get their values when the load is carried out; until then they are poisoned."""
    count = _shape(m)
    destination, source = ops.count(2)
    numbers = [ops.register(register, "b32") for register in ops.elements(destination)]
    address = ops.scalar_address(source)
    if len(numbers) != count:
        raise UnsupportedPtx(f"{len(numbers)} destinations of .x{count}")

    def body(warp, lanes):
        converged(lanes)
        where, poison = address(warp, lanes), np.full(32, 0xFFFFFFFF, np.uint32)
        for number in numbers:
            warp.registers[number] = poison
        warp.tensor_loads += 1

        def apply():
            cells = warp.cta.tensor_memory.ld(where, count, warp.index)
            for number, values in zip(numbers, cells, strict=True):
                warp.registers[number] = values
            warp.tensor_loads -= 1

        warp.cta.issue(ops.instruction, apply)
        return Signal.YIELD

    return body


def _tensor_store(m: Modifiers, ops: Operands) -> Body:
    count = _shape(m)
    target, source = ops.count(2)
    values = [ops.values(register) for register in ops.elements(source)]
    address = ops.scalar_address(target)
    if len(values) != count:
        raise UnsupportedPtx(f"{len(values)} sources of .x{count}")

    def body(warp, lanes):
        converged(lanes)
        where, data = address(warp, lanes), np.stack([value(warp) for value in values])
        warp.tensor_stores += 1

        def apply():
            warp.cta.tensor_memory.st(where, data, warp.index)
            warp.tensor_stores -= 1

        warp.cta.issue(ops.instruction, apply)
        return Signal.YIELD

    return body


def _wait_for_tensor(name: str):
    def decode(m: Modifiers, ops: Operands) -> Body:
        m.take(("sync",))
        m.take(("aligned",))
        ops.count(0)

        def body(warp, lanes):
            converged(lanes)

            def ready() -> bool:
                return not getattr(warp, name)

            return None if ready() else Wait(ready, lambda: name.replace("_", " "))

        return body

    return decode


def _mma(m: Modifiers, ops: Operands) -> Body:
    paired = m.take(_GROUPS) == "cta_group::2"
    kind = m.take(("kind::f16", "kind::tf32", "kind::f8f6f4"))[len("kind::") :]
    d, a, b, instruction, accumulate = ops.count(5)
    if isinstance(a, Address):
        raise UnsupportedPtx("tcgen05.mma with A in tensor memory")
    d = ops.address(d)
    a, b, instruction = ops.values(a, 8), ops.values(b, 8), ops.values(instruction)
    accumulate = ops.register(accumulate, "pred")

    def body(warp, lanes):
        cta = warp.cta
        operands = [x(warp) for x in (d, a, b, instruction)]
        adds = warp.registers[accumulate]
        for lane in lanes:
            d_, a_, b_, i_ = (int(x[lane]) for x in operands)
            adds_ = bool(adds[lane])

            def apply(d_=d_, a_=a_, b_=b_, i_=i_, adds_=adds_):
                ctas = cta.cluster.pair(cta) if paired else [cta]
                mma(
                    [peer.tensor_memory for peer in ctas],
                    [peer.shared for peer in ctas],
                    d_,
                    a_,
                    b_,
                    i_,
                    kind=kind,
                    accumulate=adds_,
                )

            cta.issue(ops.instruction, apply, warp.tensor_queue)
        return Signal.YIELD

    return body


def _commit(m: Modifiers, ops: Operands) -> Body:
    """An arrival that takes place when the warp's earlier mma operations are complete.

    With a mask: at the same address in each CTA of the cluster whose bit is set.
    """
    m.take(_GROUPS)
    m.take(("mbarrier::arrive::one",))
    m.take(("shared::cluster",), default="generic")
    multicast = m.flag("multicast::cluster")
    m.take(("b64",))
    barrier, *mask = ops.count(1 + multicast)
    address = ops.address(barrier)
    mask = ops.values(mask[0], 2) if multicast else None

    def body(warp, lanes):
        addresses = address(warp)
        for lane in lanes:
            where = int(addresses[lane])

            targets = int(mask(warp)[lane]) if multicast else 0

            def apply(where=where, targets=targets):
                cluster = warp.cta.cluster
                if multicast:
                    for cta in cluster.multicast(targets):
                        cta.mbarriers.at(where).arrive()
                else:
                    cta, at = cluster.locate(warp.cta, where)
                    cta.mbarriers.at(at).arrive()

            warp.cta.issue(ops.instruction, apply, warp.tensor_queue)
        return Signal.YIELD

    return body


DECODERS = {
    "tcgen05.alloc": _alloc,
    "tcgen05.dealloc": _dealloc,
    "tcgen05.relinquish_alloc_permit": _relinquish,
    "tcgen05.ld": _tensor_load,
    "tcgen05.st": _tensor_store,
    "tcgen05.wait::ld": _wait_for_tensor("tensor_loads"),
    "tcgen05.wait::st": _wait_for_tensor("tensor_stores"),
    "tcgen05.mma": _mma,
    "tcgen05.commit": _commit,
}

"""Decoders of barriers: of the CTA's threads, and mbarrier objects."""

from __future__ import annotations

import numpy as np

from .errors import UnsupportedPtx
from .lanes import WARP_LANES
from .memory import DYNAMIC_SMEM_OFFSET
from .modifiers import Modifiers
from .operands import Body, Operands, converged
from .ptx import Sink
from .warp import Signal, Wait

_TRUE, _FALSE = np.ones(WARP_LANES, bool), np.zeros(WARP_LANES, bool)


def _barrier(m: Modifiers, ops: Operands) -> Body:
    m.flag("cta", "aligned")
    arrive_only = m.take(("sync", "arrive")) == "arrive"
    number, *threads = ops.count(1, 2)
    number = ops.scalar(number)
    expected = ops.scalar(threads[0]) if threads else None

    def body(warp, lanes):
        converged(lanes)
        barrier = warp.cta.named_barrier(number(warp, lanes))
        # Without a count the barrier is one of all threads that have not exited.
        count = expected(warp, lanes) if expected else warp.cta.live * WARP_LANES
        generation = barrier.generation
        barrier.arrive(WARP_LANES, count)
        return (None if arrive_only else barrier.wait(generation)) or Signal.YIELD

    return body


def _warp_barrier(m: Modifiers, ops: Operands) -> Body:
    """The lanes of a warp are always together."""
    m.take(("sync",))
    ops.count(1)
    return lambda warp, lanes: converged(lanes)


def _cluster_arrive(m: Modifiers, ops: Operands) -> Body:
    m.flag("aligned", "release", "relaxed")
    ops.count(0)

    def body(warp, lanes):
        converged(lanes)
        warp.cta.cluster.arrive(warp)
        return Signal.YIELD

    return body


def _cluster_wait(m: Modifiers, ops: Operands) -> Body:
    m.flag("aligned", "acquire")
    ops.count(0)

    def body(warp, lanes):
        converged(lanes)
        return warp.cta.cluster.wait(warp)

    return body


def _scopes(m: Modifiers) -> None:
    m.flag("release", "acquire", "relaxed", "cta", "cluster")
    m.take(("shared", "shared::cta", "shared::cluster"), default="shared")
    m.take(("b64",))


def _init(m: Modifiers, ops: Operands) -> Body:
    _scopes(m)
    barrier, count = ops.count(2)
    address, count = ops.scalar_address(barrier), ops.scalar(count)

    def body(warp, lanes):
        origin = str(ops.instruction.source or f"PTX line {ops.instruction.line}")
        warp.cta.mbarriers.init(address(warp, lanes), count(warp, lanes), origin)

    return body


def _inval(m: Modifiers, ops: Operands) -> Body:
    _scopes(m)
    (barrier,) = ops.count(1)
    address = ops.scalar_address(barrier)
    return lambda warp, lanes: warp.cta.mbarriers.inval(address(warp, lanes))


def _arrive(m: Modifiers, ops: Operands) -> Body:
    """mbarrier.arrive by each of the active lanes, with .expect_tx after expecting bytes."""
    expects = m.flag("expect_tx")
    _scopes(m)
    operands = ops.count(3) if expects else ops.count(2, 3)
    if not isinstance(operands[0], Sink):
        raise UnsupportedPtx("mbarrier.arrive that returns a state")
    address = ops.address(operands[1])
    amount = ops.values(operands[2]) if len(operands) > 2 else None

    def body(warp, lanes):
        addresses = address(warp)
        amounts = amount(warp) if amount else None
        for lane in lanes:
            owner, where = warp.cta.cluster.locate(warp.cta, int(addresses[lane]))
            barrier = owner.mbarriers.at(where)
            if expects:
                barrier.expect_tx(int(amounts[lane]))
                barrier.arrive()
            else:
                barrier.arrive(1 if amounts is None else int(amounts[lane]))
        return Signal.YIELD

    return body


def _expect_tx(m: Modifiers, ops: Operands) -> Body:
    _scopes(m)
    barrier, nbytes = ops.count(2)
    address, nbytes = ops.address(barrier), ops.values(nbytes)

    def body(warp, lanes):
        for lane in lanes:
            owner, where = warp.cta.cluster.locate(warp.cta, int(address(warp)[lane]))
            barrier = owner.mbarriers.at(where)
            barrier.expect_tx(int(nbytes(warp)[lane]))
        return Signal.YIELD

    return body


def _test(blocking: bool):
    def decode(m: Modifiers, ops: Operands) -> Body:
        """test_wait.parity; try_wait.parity too, which blocks until it would be true.

        The ISA lets try_wait give up after a time; a program that tries again can't tell.
        """
        m.take(("parity",))
        _scopes(m)
        result, barrier, parity, *_ = ops.count(3, 4) if blocking else ops.count(3)
        address, parity = ops.scalar_address(barrier), ops.scalar(parity)
        write = ops.destination(result)

        def body(warp, lanes):
            barrier = warp.cta.mbarriers.at(address(warp, lanes))
            wanted = parity(warp, lanes)
            done = barrier.test_parity(wanted)
            write(warp, lanes, (_TRUE if done or blocking else _FALSE)[: len(lanes)])
            if not blocking:
                return Signal.YIELD
            if done:
                return None
            return Wait(
                lambda: barrier.test_parity(wanted),
                lambda: (
                    f"parity {wanted} of {barrier.describe()}; shared memory offset "
                    f"{barrier.address - DYNAMIC_SMEM_OFFSET}"
                ),
            )

        return body

    return decode


DECODERS = {
    "bar": _barrier,
    "barrier": _barrier,
    "bar.warp": _warp_barrier,
    "barrier.cluster.arrive": _cluster_arrive,
    "barrier.cluster.wait": _cluster_wait,
    "mbarrier.init": _init,
    "mbarrier.inval": _inval,
    "mbarrier.arrive": _arrive,
    "mbarrier.expect_tx": _expect_tx,
    "mbarrier.test_wait": _test(blocking=False),
    "mbarrier.try_wait": _test(blocking=True),
}

"""Decoders of cluster launch control (PTX ISA, clusterlaunchcontrol)."""

from __future__ import annotations

import numpy as np

from .clc import RESPONSE_BYTES, first_ctaid
from .errors import ProtocolError, UnsupportedPtx
from .modifiers import Modifiers
from .operands import Body, Operands
from .ptx import Operand
from .warp import Signal, Warp


def _try_cancel(m: Modifiers, ops: Operands) -> Body:
    m.take(("async",))
    m.take(("shared::cta",), default="shared::cta")
    m.take(("mbarrier::complete_tx::bytes",))
    everywhere = m.flag("multicast::cluster::all")
    m.take(("b128",))
    response, barrier = ops.count(2)
    response, barrier = ops.address(response), ops.address(barrier)

    def body(warp, lanes):
        cta = warp.cta
        for lane in lanes:
            where, signal = int(response(warp)[lane]), int(barrier(warp)[lane])
            cta.grid.queue.check_may_cancel(cta.ctaid)
            cta.cancels_in_flight += 1

            def apply(where=where, signal=signal):
                data = np.frombuffer(cta.grid.queue.cancel(cta.ctaid), np.uint8)
                for receiver in cta.cluster.ctas if everywhere else (cta,):
                    if not receiver.live:
                        raise ProtocolError(f"try_cancel answers CTA {receiver.ctaid}, now exited")
                    receiver.shared.store(np.array([where], np.uint64), data[None, :])
                    receiver.mbarriers.at(signal).complete_tx(RESPONSE_BYTES)
                cta.cancels_in_flight -= 1

            cta.issue(ops.instruction, apply)
        return Signal.YIELD

    return body


def _response(ops: Operands, operand: Operand):
    number = ops.register(operand, "b128")

    def read(warp: Warp, lanes: np.ndarray) -> bytes:
        rows = warp.registers[number][lanes]
        if (rows != rows[0]).any():
            raise UnsupportedPtx("responses that differ between the lanes of a warp")
        return rows[0].tobytes()

    return read


def _is_canceled(m: Modifiers, ops: Operands) -> Body:
    m.take(("pred",))
    m.take(("b128",))
    result, response = ops.count(2)
    write, response = ops.destination(result), _response(ops, response)

    def body(warp, lanes):
        cta = warp.cta
        canceled = cta.grid.queue.query_is_canceled(cta.ctaid, response(warp, lanes))
        write(warp, lanes, np.full(len(lanes), canceled))

    return body


def _get_first_ctaid(m: Modifiers, ops: Operands) -> Body:
    m.take(("v4",))
    m.take(("b32",))
    m.take(("b128",))
    result, response = ops.count(2)
    writes = [ops.destination(x) for x in ops.elements(result)]
    response = _response(ops, response)
    if len(writes) != 4:
        raise UnsupportedPtx(f"{len(writes)} destinations of .v4")

    def body(warp, lanes):
        ctaid = (*first_ctaid(response(warp, lanes)), 0)
        for write, value in zip(writes, ctaid, strict=True):
            write(warp, lanes, np.full(len(lanes), value, np.uint32))

    return body


DECODERS = {
    "clusterlaunchcontrol.try_cancel": _try_cancel,
    "clusterlaunchcontrol.query_cancel.is_canceled": _is_canceled,
    "clusterlaunchcontrol.query_cancel.get_first_ctaid": _get_first_ctaid,
}

"""Cluster Launch Control: the queue that launches and try_cancel share, and its responses.

PTX ISA, "clusterlaunchcontrol". A cluster goes by its first CTA. The 16 bytes of a response are
opaque to a kernel, which may only query them, so their layout is the emulator's own.
"""

from __future__ import annotations

import struct
from collections import deque

from .errors import ProtocolError

Ctaid = tuple[int, int, int]

RESPONSE_BYTES = 16
_CANCELED, _FAILED = 0xC1C0_0001, 0xC1C0_0000


class ClusterQueue:
    """The clusters of a grid that are not launched yet, in launch order (x fastest, z slowest).

    ``grid``: extents in CTAs, multiples of those of a ``cluster``. A cluster goes by the ctaid
    of its first CTA. ``stolen``: for each CTA, by ctaid, the ctaids that it got by try_cancel,
    in order.
    """

    def __init__(self, grid: Ctaid, cluster: Ctaid = (1, 1, 1)):
        x, y, z = (range(0, n, step) for n, step in zip(grid, cluster, strict=True))
        self._pending = deque((i, j, k) for k in z for j in y for i in x)
        self._observed_failure: set[Ctaid] = set()
        self.stolen: dict[Ctaid, list[Ctaid]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def launch(self) -> Ctaid | None:
        """The next CTA for a free SM, or None when all are launched or cancelled."""
        return self._pending.popleft() if self._pending else None

    def check_may_cancel(self, thief: Ctaid) -> None:
        """To be called when ``thief`` issues a try_cancel.

        Raises ProtocolError if it has observed a failed one: undefined behaviour by the ISA.
        """
        if thief in self._observed_failure:
            raise ProtocolError(
                f"CTA {thief} issued try_cancel after it had observed a failed response"
            )

    def cancel(self, thief: Ctaid) -> bytes:
        """Carry out a try_cancel of CTA ``thief``: the response to write to shared memory."""
        ctaid = self.launch()
        if ctaid is not None:
            self.stolen.setdefault(thief, []).append(ctaid)
        return encode_response(ctaid)

    def query_is_canceled(self, thief: Ctaid, response: bytes) -> bool:
        """query_cancel.is_canceled by CTA ``thief``, which thereby observes a failure if false."""
        canceled = is_canceled(response)
        if not canceled:
            self._observed_failure.add(thief)
        return canceled


def encode_response(ctaid: Ctaid | None) -> bytes:
    """The response that gives CTA ``ctaid``, or for None the one that says it failed."""
    if ctaid is None:
        return struct.pack("<4I", *3 * (0xFFFFFFFF,), _FAILED)
    return struct.pack("<4I", *ctaid, _CANCELED)


def is_canceled(response: bytes) -> bool:
    """query_cancel.is_canceled. Raises ProtocolError for 16 bytes that are no response."""
    tag = struct.unpack("<4I", response)[3]
    if tag not in (_CANCELED, _FAILED):
        raise ProtocolError(f"query_cancel of {response.hex()}, which is no try_cancel response")
    return tag == _CANCELED


def first_ctaid(response: bytes) -> Ctaid:
    """query_cancel.get_first_ctaid. Raises ProtocolError for the response of a failure."""
    if not is_canceled(response):
        raise ProtocolError("query_cancel.get_first_ctaid of a failed try_cancel")
    return struct.unpack("<4I", response)[:3]

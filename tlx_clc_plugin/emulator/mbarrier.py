"""The mbarrier object: a phase completes when its arrivals and its bytes are all in.

Semantics from the PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .errors import MemoryFault, ProtocolError

MAX_COUNT = 2**20 - 1  # of arrivals, and of the transaction count in either direction


@dataclass
class Mbarrier:
    """One barrier: ``count`` arrivals expected a phase, ``pending`` of them and ``tx`` bytes
    missing in the current one, ``phase`` completed ones so far.

    ``origin`` says where it was initialised (free text for reports).
    """

    address: int
    count: int
    origin: str = ""
    pending: int = field(init=False)
    tx: int = field(init=False, default=0)
    phase: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise ProtocolError(
                f"mbarrier.init at {self.address:#x}: count must be in [1, {MAX_COUNT}], "
                f"got {self.count}"
            )
        self.pending = self.count

    def arrive(self, count: int = 1) -> bool:
        """Take ``count`` arrivals off the pending ones; true if that completed the phase."""
        if not 1 <= count <= self.pending:
            raise ProtocolError(f"arrival of {count} at {self.describe()}")
        self.pending -= count
        return self._complete_phase_if_done()

    def expect_tx(self, nbytes: int) -> None:
        """Add ``nbytes`` to the bytes that the current phase waits for."""
        self._add_tx(nbytes)

    def complete_tx(self, nbytes: int) -> bool:
        """Take ``nbytes`` arrived bytes off; true if that completed the phase.

        The bytes may come before they are expected, which leaves a negative count.
        """
        self._add_tx(-nbytes)
        return self._complete_phase_if_done()

    def test_parity(self, parity: int) -> bool:
        """Whether the phase with this parity is the completed one before the current phase."""
        if parity not in (0, 1):
            raise ProtocolError(f"phase parity must be 0 or 1, got {parity}, at {self.describe()}")
        return self.phase & 1 != parity

    def describe(self) -> str:
        """State for reports, in one line."""
        where = f" (initialised at {self.origin})" if self.origin else ""
        return (
            f"mbarrier {self.address:#x}{where}: phase {self.phase}, "
            f"{self.pending} of {self.count} arrivals and {self.tx} bytes pending"
        )

    def _add_tx(self, nbytes: int) -> None:
        if abs(self.tx + nbytes) > MAX_COUNT:
            raise ProtocolError(
                f"transaction count changes by {nbytes} beyond +-{MAX_COUNT} at {self.describe()}"
            )
        self.tx += nbytes

    def _complete_phase_if_done(self) -> bool:
        if self.pending or self.tx:
            return False
        self.phase += 1
        self.pending = self.count
        return True


class MbarrierTable:
    """The live barriers of a CTA, by shared window address."""

    def __init__(self) -> None:
        self._live: dict[int, Mbarrier] = {}

    def __iter__(self) -> Iterator[Mbarrier]:
        return iter(self._live.values())

    def init(self, address: int, count: int, origin: str = "") -> Mbarrier:
        """mbarrier.init. Raises ProtocolError over a live barrier, MemoryFault if misaligned."""
        if address % 8:
            raise MemoryFault(f"an mbarrier must be 8-byte aligned, got address {address:#x}")
        if address in self._live:
            raise ProtocolError(f"mbarrier.init over the live {self._live[address].describe()}")
        barrier = self._live[address] = Mbarrier(address, count, origin)
        return barrier

    def inval(self, address: int) -> None:
        """mbarrier.inval. Raises ProtocolError if there is no barrier at ``address``."""
        self.at(address)
        del self._live[address]

    def at(self, address: int) -> Mbarrier:
        """The barrier at ``address``; ProtocolError if none was initialised there."""
        try:
            return self._live[address]
        except KeyError:
            raise ProtocolError(f"no mbarrier was initialised at address {address:#x}") from None

"""CTAs that are launched together and reach each other's shared memory.

A shared window address below 2^24 is the CTA's own; that of cluster rank r, as mapa gives it, has
r + 1 in its bits from 24 on (a convention of this emulator: the ISA leaves the value open).
"""

from __future__ import annotations

from .errors import MemoryFault, ProtocolError
from .warp import Cta, Wait, Warp

WINDOW_SHIFT = 24
MAX_CTAS = 16  # with cudaFuncAttributeNonPortableClusterSizeAllowed


class Cluster:
    """``ctas``: by rank, x fastest."""

    def __init__(self) -> None:
        self.ctas: list[Cta] = []
        self._generation = 0  # of barrier.cluster
        self._arrived: set[Warp] = set()  # in this generation
        self._waiting: dict[Warp, int] = {}  # generation of each warp's last arrival not waited for

    def locate(self, cta: Cta, address: int) -> tuple[Cta, int]:
        """Whose shared memory an address used by ``cta`` is in, and its address there.

        Raises MemoryFault for a rank out of range, ProtocolError for a CTA that has exited.
        """
        rank, offset = address >> WINDOW_SHIFT, address & (1 << WINDOW_SHIFT) - 1
        return (self.peer(rank - 1) if rank else cta), offset

    def peer(self, rank: int) -> Cta:
        """The CTA of a rank. Raises as :meth:`locate`."""
        if rank >= len(self.ctas):
            raise MemoryFault(f"CTA rank {rank} in a cluster of {len(self.ctas)}")
        if not self.ctas[rank].live:
            raise ProtocolError(f"CTA rank {rank} of the cluster has exited")
        return self.ctas[rank]

    def multicast(self, mask: int) -> list[Cta]:
        """The CTAs whose bits are set. Raises as :meth:`locate`."""
        return [self.peer(rank) for rank in range(mask.bit_length()) if mask >> rank & 1]

    def pair(self, cta: Cta) -> list[Cta]:
        """The two CTAs of cta_group::2: ranks that differ in the last bit only."""
        return [self.peer(cta.rank & ~1), self.peer(cta.rank | 1)]

    def arrive(self, warp: Warp) -> None:
        """barrier.cluster.arrive, which need not be waited for.

        Raises ProtocolError for a second one before the barrier has completed.
        """
        if warp in self._arrived:
            raise ProtocolError("barrier.cluster.arrive twice before the barrier has completed")
        self._waiting[warp] = self._generation
        self._arrived.add(warp)
        self._complete_if_all_arrived()

    def exit(self, warp: Warp) -> None:
        """A warp that has exited is no longer waited for by barrier.cluster."""
        self._arrived.discard(warp)
        self._complete_if_all_arrived()

    def wait(self, warp: Warp) -> Wait | None:
        """barrier.cluster.wait; None if the barrier has completed. ProtocolError if not arrived."""
        if warp not in self._waiting:
            raise ProtocolError("barrier.cluster.wait without an arrival before it")
        generation = self._waiting.pop(warp)

        def ready() -> bool:
            return self._generation > generation

        return None if ready() else Wait(ready, lambda: f"barrier.cluster, {self._state()}")

    def _complete_if_all_arrived(self) -> None:
        if self._arrived and len(self._arrived) == sum(cta.live for cta in self.ctas):
            self._arrived.clear()
            self._generation += 1

    def _state(self) -> str:
        return f"{len(self._arrived)} of {sum(cta.live for cta in self.ctas)} warps arrived"

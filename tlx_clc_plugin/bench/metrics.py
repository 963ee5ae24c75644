"""What is measured of a backend on an input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..emulator import CtaReport, LaunchReport

METRICS = {
    "accuracy": "1 if the output is right by the float64 check, else 0",
    "error": "worst element's error, as a share of what fp32 accumulation may do to it",
    "latency": "median milliseconds (GPU)",
    "tflops": "1e12 floating-point operations a second (GPU)",
    "speedup": "latency of the baseline / latency (GPU)",
    "tiles_per_cta_min": "output tiles of the CTA that computed fewest (emulated)",
    "tiles_per_cta_max": "output tiles of the CTA that computed most (emulated)",
    "stolen_tiles": "tiles taken over by Cluster Launch Control (emulated)",
    "instructions": "warp instructions executed (emulated)",
    "emulation_seconds": "seconds spent emulating, compilation not included (emulated)",
}
# Of a baseline not shown: it compares with the baseline.
NOT_OF_BASELINE = ("speedup",)


@dataclass
class Measurement:
    """``values``: by metric; what is absent does not apply to this backend or device.

    ``error``: what the backend raised instead of a result. ``inaccurate``: what is wrong with its
    result. Both are empty where all is well.
    """

    values: dict[str, float | int] = field(default_factory=dict)
    error: str = ""
    inaccurate: str = ""

    @property
    def failure(self) -> str:
        """What went wrong, in words; empty where all is well."""
        return self.error or (f"inaccurate, {self.inaccurate}" if self.inaccurate else "")


def of_launches(
    launches: Sequence[LaunchReport], tile: tuple[int, int] | None
) -> dict[str, float | int]:
    """Metrics of emulated launches, none where there was no launch. ``tile``: see Backend."""
    if not launches:
        return {}
    ctas = [cta for launch in launches for cta in launch.ctas]
    tiles = [1 if tile is None else _tiles_stored(cta, tile) for cta in ctas]
    return {
        "tiles_per_cta_min": min(tiles),
        "tiles_per_cta_max": max(tiles),
        "stolen_tiles": sum(len(cta.stolen) for cta in ctas),
        "instructions": sum(launch.instructions for launch in launches),
        "emulation_seconds": sum(launch.seconds for launch in launches),
    }


def _tiles_stored(cta: CtaReport, tile: tuple[int, int]) -> int:
    rows, columns = tile
    # Coordinates come innermost dimension first.
    return len({(y // rows, x // columns) for x, y in (store.coords for store in cta.tma_stores)})

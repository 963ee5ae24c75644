"""What a launch did."""

from __future__ import annotations

from dataclasses import dataclass

Ctaid = tuple[int, int, int]


@dataclass(frozen=True)
class TmaStore:
    """One tensor store as issued.

    ``base``: global address of the tensor. ``coords``: of the box's first element, ``box``: its
    extents in elements; both innermost dimension first, and not clipped to the tensor.
    """

    base: int
    coords: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class CtaReport:
    """One CTA. ``stolen``: the ctaids it got by try_cancel, in order.

    ``instructions``: executed by its warps, a warp instruction counting once.
    """

    ctaid: Ctaid
    sm: int
    stolen: tuple[Ctaid, ...]
    tma_stores: tuple[TmaStore, ...]
    instructions: int


@dataclass(frozen=True)
class LaunchReport:
    """One kernel launch; the same inputs, policy and seed give the same report.

    ``instructions``: warp instructions executed. ``seconds``: spent emulating, decoding of the
    PTX not included. ``ctas``: in launch order, only those launched (a stolen one never is).
    """

    kernel: str
    grid: Ctaid
    sms: int
    policy: str
    seed: int
    instructions: int
    seconds: float
    ctas: list[CtaReport]

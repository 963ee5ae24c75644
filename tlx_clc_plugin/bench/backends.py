"""The implementations that stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..config import SCHEDULES

if TYPE_CHECKING:
    import torch

Call = Callable[[], "torch.Tensor"]


@dataclass(frozen=True)
class Backend:
    """One way to compute ``a @ b + bias``.

    ``prepare(a, b, bias)``, bias possibly None, gives the callable that is run and timed.
    ``tile(a, b, bias)``: rows and columns of its output tiles, where a CTA may compute several;
    None where it computes one. ``schedule``: of our kernels, which not every GPU can run.
    """

    name: str
    description: str
    prepare: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], Call]
    tile: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], tuple[int, int]] | None = None
    schedule: str | None = None


def _aten_matmul(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Call:
    import torch

    if bias is None:
        return lambda: torch.matmul(a, b)
    return lambda: torch.matmul(a, b) + bias


def _triton_tutorial_matmul(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Call:
    from ..kernels.triton_tutorial import triton_tutorial_matmul

    if bias is None:
        return lambda: triton_tutorial_matmul(a, b)
    return lambda: triton_tutorial_matmul(a, b) + bias


def _tlx(schedule: str, config: str | None = None) -> Backend:
    def prepare(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Call:
        from ..gemm import matmul, plan

        if config is not None:
            # Tunes here, and so not in the call that is checked and timed.
            plan(a, b, bias=bias, schedule=schedule, config=config)
        return lambda: matmul(a, b, bias=bias, schedule=schedule, config=config)

    def tile(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> tuple[int, int]:
        from ..gemm import plan

        chosen = plan(a, b, bias=bias, schedule=schedule, config=config).config
        return chosen.block_size_m, chosen.block_size_n

    return Backend(
        f"tlx_{schedule}",
        f"warp-specialised TLX kernel, schedule {schedule!r}; bias fused",
        prepare,
        tile,
        schedule,
    )


def autotuned(backend: Backend) -> Backend:
    """One of our kernels with its config autotuned; any other backend as it is."""
    return backend if backend.schedule is None else _tlx(backend.schedule, "autotune")


BASELINE = "aten_matmul"
BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(BASELINE, "torch.matmul, on the emulated device: on the CPU", _aten_matmul),
        Backend(
            "triton_tutorial_matmul",
            "stock Triton, one 128x128 tile a CTA",
            _triton_tutorial_matmul,
        ),
        *map(_tlx, SCHEDULES),
    )
}

"""Metrics that we add to the harness's gemm operator.

On truth: the operator's own ``accuracy`` compares with the baseline, and its tolerance takes an
all-zero output for right from K of about 100 on. ``tlx_accuracy`` and ``tlx_error`` compare with
float64 (``accuracy.check``), for every backend, the baseline too.

On the emulated device also what the emulator counts, as the embedded runner shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import accuracy
from ..bench.backends import BACKENDS
from ..bench.metrics import of_launches
from ..emulator import EmulatedDevice
from .generation import forward

if TYPE_CHECKING:
    from ..emulator import LaunchReport

TRUTH = ("tlx_accuracy", "tlx_error")
# Only where it is known what a tile of the backend is.
_TILES = ("tiles_per_cta_min", "tiles_per_cta_max")
EMULATED = (*_TILES, "stolen_tiles", "instructions", "emulation_seconds")


@dataclass(frozen=True)
class Judged:
    """The verdict on one backend's output for the operator's current inputs.

    ``launches``: the emulated ones of the call that gave the output.
    """

    function: Callable
    verdict: accuracy.Accuracy
    launches: Sequence[LaunchReport]


def names() -> tuple[str, ...]:
    """The metrics that can be asked for on this device."""
    return TRUTH if EmulatedDevice.current() is None else (*TRUTH, *EMULATED)


def metric(name: str) -> Callable:
    """The operator's method for a metric of ``names()``; its value is None where none applies."""

    def method(operator: Any, function: Callable, inputs: Any, metrics: Any) -> float | None:
        judged = judge(operator, function)
        if judged is None:
            return None
        if name in TRUTH:
            return float(judged.verdict.ok) if name == "tlx_accuracy" else judged.verdict.error
        backend = BACKENDS.get(function._name)
        if backend is None and name in _TILES:
            return None
        tile = backend.tile(*inputs) if backend and backend.tile else None
        return of_launches(judged.launches, tile).get(name)

    return method


def judge(operator: Any, function: Callable) -> Judged | None:
    """Run ``function``, a backend's callable, and judge its output; once for each input.

    None for modes with a backward pass and for inputs that are not fp16 or bf16.
    """
    inputs = operator.example_inputs
    if operator.mode.value not in ("fwd", "fwd_no_grad") or inputs[0].dtype not in accuracy.DTYPES:
        return None
    judged = getattr(operator, "_tlx_judged", None)
    if judged is None or judged.function is not function:
        run = forward(operator, function)
        _spoil(run(), inputs)
        device = EmulatedDevice.current()
        before = len(device.launches) if device else 0
        output = run()
        launches = device.launches[before:] if device else ()
        judged = Judged(function, accuracy.check(output, *inputs), launches)
        operator._tlx_judged = judged
    return judged


def _spoil(output: Any, inputs: Sequence[torch.Tensor | None]) -> None:
    """Fill an output with NaN.

    So neither memory that happens to hold it nor a cached output passes for the next result.
    """
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        storage = output.untyped_storage().data_ptr()
        # An output that shares an input's memory is wrong anyway; the next backend needs the input.
        if all(x is None or x.untyped_storage().data_ptr() != storage for x in inputs):
            output.detach().fill_(torch.nan)

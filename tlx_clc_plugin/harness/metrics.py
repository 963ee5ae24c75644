"""Metrics of the harness's gemm operator that tell whether a product is right.

Its own ``accuracy`` compares with the baseline, and its tolerance takes an all-zero output for
right from K of about 100 on. Ours compare with float64 (``accuracy.check``), the baseline too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import accuracy
from .generation import forward


def tlx_accuracy(operator: Any, function: Callable, inputs: Any, metrics: Any) -> float | None:
    """1 where the output is right, 0 where it is wrong, None where nothing is judged."""
    verdict = judge(operator, function)
    return None if verdict is None else float(verdict.ok)


def tlx_error(operator: Any, function: Callable, inputs: Any, metrics: Any) -> float | None:
    """The worst element's error as a share of what fp32 accumulation may do to it, unitless."""
    verdict = judge(operator, function)
    return None if verdict is None else verdict.error


METRICS = {"tlx_accuracy": tlx_accuracy, "tlx_error": tlx_error}


def judge(operator: Any, function: Callable) -> accuracy.Accuracy | None:
    """The verdict on a backend's output for the operator's current inputs, computed once.

    None for modes with a backward pass and for inputs that are not fp16 or bf16.
    """
    a, b, bias = operator.example_inputs
    if operator.mode.value not in ("fwd", "fwd_no_grad") or a.dtype not in accuracy.DTYPES:
        return None
    judged, verdict = getattr(operator, "_tlx_judged", (None, None))
    if judged is not function:
        verdict = accuracy.check(
            _fresh_output(forward(operator, function), (a, b, bias)), a, b, bias
        )
        operator._tlx_judged = function, verdict
    return verdict


def _fresh_output(function: Callable[[], Any], inputs: tuple[torch.Tensor | None, ...]) -> Any:
    """What ``function`` returns after its last output was overwritten with NaN.

    So neither memory that happens to hold an earlier result nor a cached output passes for a new
    one.
    """
    output = function()
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        storage = output.untyped_storage().data_ptr()
        # An output that shares an input's memory is wrong anyway; the next backend needs the input.
        if all(x is None or x.untyped_storage().data_ptr() != storage for x in inputs):
            output.detach().fill_(torch.nan)
    del output
    return function()

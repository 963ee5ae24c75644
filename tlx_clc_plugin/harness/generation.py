"""The differences between the harness's generations, found by looking at it.

Older: baselines are one name per operator, the wrapper of --mode fwd_no_grad drops the result.
Newer (from August 2026, with --tags): several baselines, the result is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def baselines(op: str) -> tuple[str, ...]:
    """The names of the operator's baselines."""
    from tritonbench.utils.triton_op import BASELINE_BENCHMARKS

    names = BASELINE_BENCHMARKS.get(op, ())
    return (names,) if isinstance(names, str) else tuple(names)


def forward(operator: Any, function: Callable[[], Any]) -> Callable[[], Any]:
    """``function``, as the harness times it in a forward mode, but sure to return its result."""
    import torch

    if operator.mode.value != "fwd_no_grad":
        return function
    backend = getattr(operator, function._name)(*operator.example_inputs)
    return torch.no_grad()(backend)


def hashes_corrupt_the_table() -> bool:
    """Whether the metric kernel_source_hash shifts the other columns, as it did."""
    from tritonbench.utils.parser import get_parser

    return not any("--tags" in action.option_strings for action in get_parser([])._actions)

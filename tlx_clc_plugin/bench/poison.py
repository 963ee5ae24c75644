"""Memory that was never written is no result."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_ALLOCATORS = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)


class NewMemoryIsNan(TorchFunctionMode):
    """Inside, new uninitialised floating-point tensors hold NaN.

    Otherwise an output that a kernel never wrote can pass, in memory that held an earlier,
    right one.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _ALLOCATORS and result.is_floating_point():
            result.fill_(torch.nan)
        return result

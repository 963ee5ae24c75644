"""Warp-specialised Blackwell GEMM kernels in TLX, static persistent and Cluster Launch Control.

``matmul(a, b, schedule="clc")`` multiplies, ``plan(a, b)`` says how it would,
``tlx_clc_plugin.emulator`` runs the compiled kernels on a CPU.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["SCHEDULES", "GemmConfig", "GemmPlan", "matmul", "plan", "register"]

# Names are resolved on first use: the command line must not pay for torch before it needs it.
_HOMES = {
    "GemmConfig": "config",
    "GemmPlan": "planning",
    "SCHEDULES": "config",
    "matmul": "gemm",
    "plan": "gemm",
    "register": "harness.register",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

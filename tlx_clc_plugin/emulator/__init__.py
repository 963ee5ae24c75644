"""An emulator of sm_100a and sm_90a that runs the PTX of compiled Triton kernels on a CPU.

    text -> parse -> decode (alu, *_ops) -> launch, scheduler (warp) -> report

with the engines below: memory, mbarrier, tensormap, tma, swizzle, tensor_memory, descriptors,
mma, wgmma, clc. ``device`` and ``driver`` put it under Triton, ``launch.run_ptx`` runs bare PTX.
"""

from .device import CAPABILITIES, EmulatedDevice
from .errors import (
    Deadlock,
    EmulationError,
    MemoryFault,
    ProtocolError,
    StepLimit,
    UnsupportedPtx,
)
from .launch import run_ptx
from .report import CtaReport, LaunchReport, TmaStore

__all__ = [
    "CAPABILITIES",
    "CtaReport",
    "Deadlock",
    "EmulatedDevice",
    "EmulationError",
    "LaunchReport",
    "MemoryFault",
    "ProtocolError",
    "StepLimit",
    "TmaStore",
    "UnsupportedPtx",
    "run_ptx",
]

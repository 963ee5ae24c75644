"""What can go wrong in an emulated launch."""

from __future__ import annotations


class EmulationError(RuntimeError):
    """Base of every error that the emulator raises while it runs a kernel."""


class UnsupportedPtx(EmulationError):
    """An instruction, operand form or descriptor field that the emulator does not model."""


class Deadlock(EmulationError):
    """No warp and no asynchronous operation can make progress."""


class StepLimit(EmulationError):
    """The launch executed more instructions than it was allowed: most likely a livelock."""


class MemoryFault(EmulationError):
    """An access outside an allocation, or one that is not aligned as the instruction demands."""


class ProtocolError(EmulationError):
    """A use of a barrier, tensor memory or launch control that the PTX ISA leaves undefined."""

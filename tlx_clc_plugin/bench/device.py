"""What the backends run on: an emulated GPU, or a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..config import cannot_run
from .backends import Backend
from .inputs import Shape

if TYPE_CHECKING:
    from ..emulator import LaunchReport


@dataclass(frozen=True)
class Emulated:
    """``arch`` emulated on the CPU; where torch itself computes, it does so on the CPU."""

    arch: str
    sms: int
    policy: str
    seed: int

    torch_device: ClassVar[str] = "cpu"
    default_metrics: ClassVar = ("accuracy", "error", "stolen_tiles", "emulation_seconds")
    default_shapes: ClassVar = (
        Shape(512, 512, 256),
        Shape(300, 520, 200),
        Shape(129, 257, 64),
        Shape(1, 8, 16),
    )

    def __str__(self) -> str:
        return (
            f"emulated {self.arch}, {self.sms} SMs, policy {self.policy}, seed {self.seed}"
            " (aten_matmul: torch on the CPU)"
        )

    def unavailable(self, backend: Backend) -> str:
        """Why the emulated GPU can't run the backend, in words; empty where it can."""
        if backend.schedule is None:
            return ""
        from ..emulator import CAPABILITIES

        capability = divmod(CAPABILITIES[self.arch], 10)
        return cannot_run(backend.schedule, capability, "the emulated device (--arch)")

    @contextmanager
    def active(self) -> Iterator[list[LaunchReport]]:
        """Makes the device Triton's; gives the list that launches are reported to."""
        from ..emulator import EmulatedDevice

        with EmulatedDevice(
            arch=self.arch, sms=self.sms, policy=self.policy, seed=self.seed
        ) as device:
            yield device.launches

    def latency(self, function: Callable) -> float | None:
        """None: the clock would time the emulator."""
        return None


@dataclass(frozen=True)
class Cuda:
    """The current CUDA device."""

    torch_device: ClassVar[str] = "cuda"
    default_metrics: ClassVar = ("latency", "speedup", "tflops", "accuracy")
    default_shapes: ClassVar = tuple(Shape(8192, 8192, K) for K in (4096, 8192, 16384))

    def __str__(self) -> str:
        import torch

        return f"cuda, {torch.cuda.get_device_name()}"

    def unavailable(self, backend: Backend) -> str:
        """Why this GPU can't run the backend, in words; empty where it can."""
        import torch

        if backend.schedule is None:
            return ""
        capability = torch.cuda.get_device_capability()
        return cannot_run(backend.schedule, capability, torch.cuda.get_device_name())

    @contextmanager
    def active(self) -> Iterator[list[LaunchReport]]:
        yield []

    def latency(self, function: Callable) -> float | None:
        """Median milliseconds of a call, L2 flushed before each."""
        from triton.testing import do_bench

        return do_bench(function, return_mode="median")


def choose(name: str | None, *, arch: str, sms: int, policy: str, seed: int) -> Emulated | Cuda:
    """The device called ``name``, or by default the GPU if there is one and an emulated one if not.

    Raises ValueError for "cuda" without a GPU.
    """
    import torch

    if name in ("emulated", "cpu") or (name is None and not torch.cuda.is_available()):
        return Emulated(arch, sms, policy, seed)
    if not torch.cuda.is_available():
        raise ValueError("--device cuda: there is no GPU; without the flag one is emulated")
    return Cuda()

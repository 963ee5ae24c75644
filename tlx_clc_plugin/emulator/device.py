"""The emulated device that Triton launches on while it is active."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .launch import DEFAULT_MAX_STEPS
from .report import LaunchReport
from .scheduler import make_policy

if TYPE_CHECKING:
    from triton.backends.driver import DriverBase

# Compute capability, as Triton writes it, by architecture.
CAPABILITIES = {"sm_90a": 90, "sm_100a": 100}


class EmulatedDevice:
    """Context manager: inside, Triton compiles for ``arch`` and the emulator runs the PTX.

    Any ``@triton.jit`` kernel may be launched as ``kernel[grid](...)`` on CPU tensors and on
    TensorDescriptors over CPU tensors, and has run when the launch returns. On exit the former
    Triton driver is active again.

    ``arch``: "sm_100a" (Blackwell) or "sm_90a" (Hopper). ``sms``: simulated SMs, each running one
    CTA at a time. ``policy``: when asynchronous operations take place: "eager" (as early as
    possible), "lazy" (as late as possible) or "random" (by ``seed``). ``max_steps``: warp
    instructions of a launch beyond which it is taken for a livelock. ``launches``: a report of
    each launch so far.

    Raises ValueError for an arch, sms or policy out of range. Launches raise EmulationError.
    """

    _active: ClassVar[list[EmulatedDevice]] = []

    def __init__(
        self,
        *,
        arch: str = "sm_100a",
        sms: int = 4,
        policy: str = "eager",
        seed: int = 0,
        max_steps: int | None = None,
    ):
        if arch not in CAPABILITIES:
            raise ValueError(f"arch must be one of {sorted(CAPABILITIES)}, got {arch!r}")
        if type(sms) is not int or sms < 1:
            raise ValueError(f"sms must be a positive int, got {sms!r}")
        make_policy(policy, seed)
        self.arch = arch
        self.sms = sms
        self.policy = policy
        self.seed = seed
        self.max_steps = DEFAULT_MAX_STEPS if max_steps is None else max_steps
        self.launches: list[LaunchReport] = []
        self._former_drivers: list[DriverBase | None] = []

    @staticmethod
    def current() -> EmulatedDevice | None:
        """The innermost active device, or None."""
        return EmulatedDevice._active[-1] if EmulatedDevice._active else None

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, (major, minor)."""
        return divmod(CAPABILITIES[self.arch], 10)

    def __enter__(self) -> EmulatedDevice:
        from triton.runtime import driver

        from .driver import EmulatedDriver

        # Not driver.active: that would create the default driver, which needs a GPU.
        self._former_drivers.append(driver._active)
        driver.set_active(EmulatedDriver())
        self._active.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        from triton.runtime import driver

        self._active.pop()
        driver.set_active(self._former_drivers.pop())

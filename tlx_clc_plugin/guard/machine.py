"""Where benchmarks run: the GPU, its state meanwhile, and the versions of what they run on."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from statistics import median

from .. import __version__
from ..nightly.night import Conditions, Gpu, Range, Versions

# Bits of clocks_throttle_reasons.active (NVML, nvmlClocksThrottleReasons). Idle, bit 0, and clocks
# set by the user, bits 1 and 4, are no throttling.
THROTTLE_REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_SAMPLED = "clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active"


def find_gpu() -> Gpu | None:
    """torch's current GPU, None without one. Raises OSError or CalledProcessError if nvidia-smi
    can't tell its driver and power limit: without them nothing may be compared."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties()
    (answer,) = _nvidia_smi("driver_version,power.limit", _id()).splitlines()
    driver, power_limit = answer.split(", ")
    return Gpu(
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        sms=properties.multi_processor_count,
        driver=driver,
        power_limit_w=float(power_limit),
        memory_gib=round(properties.total_memory / 2**30, 1),
    )


def find_versions() -> Versions:
    """Versions of Python and of the packages that make a value what it is."""
    import torch

    return Versions(
        python=platform.python_version(),
        torch=str(torch.__version__),
        fbtriton=version("fbtriton"),
        tlx_clc_plugin=__version__,
        cuda=torch.version.cuda,
    )


class Sampler:
    """Samples torch's current GPU from start to :meth:`stop`, five times a second."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["nvidia-smi", f"--id={_id()}", f"--query-gpu={_SAMPLED}", *_FORMAT, "-lms", "200"],
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> Conditions:
        """What was sampled. Raises ValueError if nothing was."""
        self._process.terminate()
        return conditions(self._process.communicate()[0])


def conditions(samples: str) -> Conditions:
    """Of nvidia-smi's lines ``clock, power, temperature, mask of reasons``; the last may be cut
    off. Raises ValueError if there is none."""
    rows = [line.split(", ") for line in samples.split("\n")[:-1]]
    if not rows:
        raise ValueError("nvidia-smi gave no sample of the GPU's clock")
    *columns, masks = zip(*rows, strict=True)
    ranges = []
    for column in columns:
        numbers = [float(text) for text in column]
        ranges.append(Range(min(numbers), median(numbers), max(numbers)))
    seen = 0
    for mask in masks:
        seen |= int(mask, 16)
    return Conditions(*ranges, [name for bit, name in THROTTLE_REASONS.items() if seen & bit])


_FORMAT = ("--format=csv,noheader,nounits",)


def _id() -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties().uuid}"


def _nvidia_smi(fields: str, gpu: str) -> str:
    command = ["nvidia-smi", f"--id={gpu}", f"--query-gpu={fields}", *_FORMAT]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

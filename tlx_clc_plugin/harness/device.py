"""The device that the harness runs on: a GPU, or the emulated one in place of a CPU."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from unittest import mock

# Of the emulated device these stay empty: the clock would time the emulator.
TIMINGS = ("latency", "tflops", "speedup")
# The harness's metrics that say something of it.
MEANINGFUL_METRICS = {
    *TIMINGS,
    "accuracy",
    "cosine_similarity",
    "determinism",
    "flops",
    "snr",
}


def choose(argv: list[str]) -> tuple[str, list[str]]:
    """The harness's name of the device to use, and ``argv`` with it in place of what was asked.

    That is "cuda" if there is a GPU, else "cpu", which is emulated; asked for as "emulated" too.
    Raises ValueError if "cuda" is asked for and there is no GPU.
    """
    import torch

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--device", "-d")
    asked, rest = parser.parse_known_args(argv)
    gpu = torch.cuda.is_available()
    if asked.device == "cuda" and not gpu:
        raise ValueError("--device cuda: there is no GPU; without the flag one is emulated")
    chosen = asked.device or ("cuda" if gpu else "cpu")
    chosen = "cpu" if chosen == "emulated" else chosen
    return chosen, [*rest, "--device", chosen]


@contextlib.contextmanager
def active(device: str, own: argparse.Namespace) -> Iterator[str]:
    """Makes the device ready and gives its description.

    For "cpu" the emulated device is Triton's from here on, also for the import of the harness's
    operators, some of which ask for the active device.
    """
    if device != "cpu":
        yield device
        return

    from triton.runtime import Autotuner

    from ..emulator import EmulatedDevice

    with EmulatedDevice(arch=own.arch, sms=own.sms, policy=own.policy, seed=own.seed):
        from tritonbench.utils import triton_op

        with (
            mock.patch.object(triton_op, "do_bench_wrapper", lambda *args, **kwargs: None),
            # All configs equal: an autotuner takes its first.
            mock.patch.object(Autotuner, "_bench", lambda *args, **kwargs: [0.0, 0.0, 0.0]),
        ):
            yield (
                f"emulated {own.arch}, {own.sms} SMs, policy {own.policy}, seed {own.seed}; "
                "timings stay empty, autotuners take their first config"
            )

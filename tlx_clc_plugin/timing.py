"""Times of calls on a GPU: interleaved, on inputs that its cache does not hold, with its clocks.

What it does is by now usual (do_bench of Triton, nvbench, QuACK): device events around several
calls, inputs rotated through more memory than the L2 cache holds, and the candidates taking turns,
so that a clock that sinks under load meets them all alike. Ratios are taken within a round.
"""

from __future__ import annotations

import math
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

Calls = Mapping[str, Sequence[Callable[[], object]]]
_QUERY = "clocks.sm", "power.draw", "temperature.gpu", "clocks_event_reasons.active"
_MAX_INPUT_SETS = 128


def input_sets(bytes_per_set: int, device: int = 0) -> int:
    """Sets of inputs that together are twice the L2 cache: at least 2, at most 128."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    return min(_MAX_INPUT_SETS, max(2, math.ceil(2 * cache / bytes_per_set)))


def time_eager(calls: Calls, *, rounds: int, milliseconds: float = 5.0) -> dict[str, np.ndarray]:
    """Microseconds a call, an array of ``rounds`` for each name, host time included.

    ``calls``: for each name a callable for each set of inputs, all warm. In each round each name
    in turn runs through its callables, over and over, for about ``milliseconds``.
    """
    runs = {}
    for name, variants in calls.items():
        repeats = max(1, math.ceil(milliseconds * 1e3 / _microseconds(variants) / len(variants)))
        runs[name] = len(variants) * repeats, [variants] * repeats
    return _take_turns(
        {
            name: (count, lambda repeated=repeated: [f() for each in repeated for f in each])
            for name, (count, repeated) in runs.items()
        },
        rounds,
    )


def time_graphs(calls: Calls, *, rounds: int, milliseconds: float = 5.0) -> dict[str, np.ndarray]:
    """As :func:`time_eager`, each turn replaying one CUDA graph: device time alone."""
    graphs = {}
    for name, variants in calls.items():
        repeats = max(1, math.ceil(milliseconds * 1e3 / _microseconds(variants) / len(variants)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                for call in variants:
                    call()
        graph.replay()
        graphs[name] = repeats * len(variants), graph.replay
    return _take_turns(graphs, rounds)


def host_microseconds(
    call: Callable[[], object], *, calls: int = 200, rounds: int = 9
) -> np.ndarray:
    """Host time of handing one call to an idle GPU, ``rounds`` means over ``calls`` calls.

    Only sensible for calls whose device time is below their host time: else the launch queue fills
    and the GPU is what is timed.
    """
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return np.array(times)


def _take_turns(
    runs: dict[str, tuple[int, Callable[[], object]]], rounds: int
) -> dict[str, np.ndarray]:
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            count, run = runs[name]
            times[name].append(_elapsed(run) / count)
    return {name: np.array(values) for name, values in times.items()}


def _elapsed(run: Callable[[], object]) -> float:
    """Microseconds between events before and after."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def _microseconds(variants: Sequence[Callable[[], object]]) -> float:
    """A first idea of a call's time; warms every callable."""
    for call in variants:
        call()
    return _elapsed(lambda: [call() for call in variants]) / len(variants)


@dataclass(frozen=True)
class Conditions:
    """State of the GPU during a measurement: medians, and the reasons for lowered clocks.

    ``sm_clock`` in MHz, ``power`` in W, ``temperature`` in degrees Celsius; ``throttle``: the bits
    of NVML's clocks event reasons, of all samples together; ``samples``: how many there were.
    """

    sm_clock: float
    power: float
    temperature: float
    throttle: int
    samples: int


class Sampler:
    """``with Sampler() as sampler``: nvidia-smi, asked for clocks and power ten times a second.

    Raises RuntimeError where it gives no sample at all.
    """

    def __init__(self, device: int = 0):
        self._command = ["nvidia-smi", f"--id={device}", "--loop-ms=100"]
        self._command += [f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
        self._samples: list[tuple[float, list[float]]] = []

    def __enter__(self) -> Sampler:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        for line in self._process.stdout:
            values = [_number(field) for field in line.split(",")]
            if len(values) == len(_QUERY):
                self._samples.append((time.monotonic(), values))

    def between(self, start: float, end: float) -> Conditions:
        """The conditions from ``start`` to ``end`` (time.monotonic), with the nearest sample."""
        samples = list(self._samples)
        if not samples:
            raise RuntimeError(f"no sample came from: {' '.join(self._command)}")
        nearest = min(samples, key=lambda s: abs(s[0] - (start + end) / 2))
        chosen = [values for at, values in samples if start <= at <= end] or [nearest[1]]
        clock, power, temperature, _ = np.median(np.array(chosen), axis=0)
        throttle = 0
        for values in chosen:
            throttle |= 0 if math.isnan(values[3]) else int(values[3])
        return Conditions(float(clock), float(power), float(temperature), throttle, len(chosen))


def _number(field: str) -> float:
    """A field of nvidia-smi; NaN for what it does not know."""
    try:
        return float(int(field, 16)) if "0x" in field else float(field)
    except ValueError:
        return math.nan

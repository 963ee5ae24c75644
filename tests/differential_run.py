"""Runs the cases of differential_cases in the emulator, and compares with what a GPU gave."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from differential_cases import Case, Map, rng_of

from tlx_clc_plugin.emulator import EmulatedDevice, run_ptx
from tlx_clc_plugin.emulator.memory import GlobalMemory
from tlx_clc_plugin.emulator.swizzle import Swizzle
from tlx_clc_plugin.emulator.tensormap import TensorMap

SAMPLES = 64  # of an output too large to keep whole
WHOLE_BYTES = 20_000
# Of Comparison.error. Tensor cores align the products of an instruction to the largest one and cut
# off what is below it by more than some 24 bits (fp16, bf16, tf32) or, on Hopper, 13 bits (fp8;
# DeepSeek-V3 technical report, 3.3.2, says 14), then truncate the sum. Four instructions follow
# one another at most, each of up to 32 products.
ROUNDING_LIMIT = {"f16": 32, "bf16": 32, "tf32": 32, "e4m3": 2**15, "e5m2": 2**15}


def emulate(case: Case, policy: str = "eager") -> np.ndarray:
    """The output array of a case."""
    memory = GlobalMemory()
    # Tensor maps need 16-byte aligned addresses.
    arrays = []
    for i, array in enumerate(case.arrays):
        space = np.zeros(array.nbytes + 16, np.uint8)
        start = -space.ctypes.data % 16
        copy = space[start : start + array.nbytes].view(array.dtype)
        copy[...] = array
        memory.add(copy.ctypes.data, copy.nbytes, f"array {i}")
        arrays.append(copy)
    parameters = []
    for parameter in case.parameters:
        if isinstance(parameter, Map):
            dims, size = parameter.dims, np.dtype(case.view).itemsize
            base = arrays[parameter.array].ctypes.data
            mode = Swizzle.from_tensor_map(parameter.swizzle)
            parameter = TensorMap(base, size, dims, strides(dims, size), parameter.box, mode)
        else:
            parameter = arrays[parameter[1]].ctypes.data
        parameters.append(parameter)
    run_ptx(
        case.ptx,
        grid=(case.grid, 1, 1),
        parameters=parameters,
        memory=memory,
        shared_bytes=case.shared_bytes,
        policy=policy,
    )
    return arrays[-1].view(case.view)


def strides(dims: tuple[int, ...], element_bytes: int) -> tuple[int, ...]:
    """Byte strides of dimensions 1 and up of a packed tensor."""
    result, stride = [], element_bytes
    for dim in dims[:-1]:
        stride *= dim
        result.append(stride)
    return tuple(result)


def summary(output: np.ndarray) -> dict[str, np.ndarray]:
    """What is recorded of an output: all of it, or a SHA-256 and some elements."""
    if output.nbytes <= WHOLE_BYTES:
        return {"whole": output}
    digest = hashlib.sha256(output.tobytes()).digest()
    return {"digest": np.frombuffer(digest, np.uint8), "samples": output[sample(len(output))]}


def sample(count: int) -> np.ndarray:
    """The elements kept of a large output."""
    return np.linspace(0, count - 1, SAMPLES).astype(int)


@dataclass(frozen=True)
class Comparison:
    """``equal``: bit for bit. ``differing``: elements that are not, of those compared.

    ``error``: for inexact sums, the largest difference in units of 2^-23 of the largest
    magnitude that the sum goes through.
    """

    name: str
    elements: int
    equal: bool
    differing: int
    error: float | None = None

    limit: float | None = None

    @property
    def accepted(self) -> bool:
        """Equal, or rounded differently within the limit."""
        return self.equal or (self.error is not None and self.error <= self.limit)


def compare(
    name: str, rounding: str, recorded: dict[str, np.ndarray], output: np.ndarray
) -> Comparison:
    """An emulated output with the summary of a GPU's."""
    if "whole" in recorded:
        theirs, ours = recorded["whole"], output
        equal = theirs.tobytes() == ours.tobytes()
    else:
        theirs, ours = recorded["samples"], output[sample(len(output))]
        equal = summary(output)["digest"].tobytes() == recorded["digest"].tobytes()
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        raise ValueError(f"{name}: recorded {theirs.dtype}{theirs.shape}: record again")
    bits = f"u{ours.dtype.itemsize}"
    differing = int((theirs.view(bits) != ours.view(bits)).sum())
    error = limit = None
    if rounding:
        limit = ROUNDING_LIMIT[rounding]
        scale = np.abs(ours).max() * 2.0**-23
        error = float(np.abs(theirs.astype(np.float64) - ours).max() / scale)
    return Comparison(name, len(output), equal, differing, error, limit)


def load(path: str | Path) -> tuple[str, dict[str, dict[str, np.ndarray]]]:
    """The device's name, and the recorded summaries by case."""
    recorded: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as data:
        for key in data:
            if key != "device":
                name, part = key.rsplit("|", 1)
                recorded.setdefault(name, {})[part] = data[key]
        return str(data["device"]), recorded


# fbtriton's Hopper tutorials, on small integers, for which every order of summation is exact


def tutorials() -> dict[str, Callable[[str], np.ndarray]]:
    """Name of each case, and what runs it on a device, "cuda" or "cpu" (emulated)."""
    pipelined = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64}
    pipelined |= {"GROUP_SIZE_M": 8, "NUM_STAGES": 3}
    ws = {"BM": 128, "BN": 128, "BK": 64, "GROUP_SIZE_M": 8, "NUM_STAGES": 3, "NUM_MMA_WARPS": 8}
    ws |= {"NUM_MMA_GROUPS": 2, "EPILOGUE_SUBTILE": True, "NUM_CTAS": 1}
    result = {}
    for name, config, layouts in (
        ("hopper_gemm_pipelined", pipelined, ("nn",)),
        ("hopper_gemm_ws", ws, ("nn", "nt", "tn", "tt")),
    ):
        for layout in layouts:
            for shape in ((144, 272, 208), (256, 128, 64)):
                key = f"{name} {layout} {shape}"
                result[key] = functools.partial(_tutorial, name, config, layout, shape)
    return result


def _tutorial(name: str, config: dict, layout: str, shape: tuple, device: str) -> np.ndarray:
    rng = rng_of(f"{name}{layout}{shape}")
    m, n, k = shape

    def operand(rows, columns, row_major):
        size = (rows, columns) if row_major else (columns, rows)
        x = torch.from_numpy(rng.integers(-4, 5, size).astype(np.float16)).to(device)
        return x if row_major else x.t()

    a, b = operand(m, k, layout[0] == "n"), operand(k, n, layout[1] == "n")
    if device != "cpu":
        return tutorial_module(name).matmul(a, b, config=config).cpu().numpy().ravel()
    with EmulatedDevice(arch="sm_90a", sms=2, policy="random"), few_sms(2):
        return tutorial_module(name).matmul(a, b, config=config).numpy().ravel()


def few_sms(count: int):
    """Tutorials ask torch for the number of SMs, even where there is no GPU."""
    properties = types.SimpleNamespace(multi_processor_count=count)
    return mock.patch("torch.cuda.get_device_properties", lambda device=None: properties)


@functools.cache
def tutorial_module(name: str) -> types.ModuleType:
    """One of fbtriton's TLX tutorials. The first call must be while the device is active."""
    import triton.language.extra.tlx as tlx

    path = Path(tlx.__file__).parent / "tutorials" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tutorial_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

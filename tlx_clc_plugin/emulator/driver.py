"""The Triton driver of the emulated device: compile for its architecture, launch here."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager

from .device import CAPABILITIES, EmulatedDevice
from .errors import UnsupportedPtx
from .lanes import round_bf16
from .launch import MAX_SHARED_BYTES, Parameter, run_ptx
from .memory import GlobalMemory
from .swizzle import Swizzle
from .tensormap import TensorMap

SCALARS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}


class EmulatedDriver(DriverBase):
    """What Triton's runtime asks of a driver, answered for the active EmulatedDevice."""

    def __init__(self) -> None:
        self.utils = _Utils()
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        return EmulatedDevice.current() is not None

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITIES[EmulatedDevice.current().arch], 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> str:
        # Triton keeps compiled kernels by device; these share none with a real GPU.
        return f"emulated {EmulatedDevice.current().arch}"

    def get_current_stream(self, device: str) -> int:
        return 0

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("the emulated device has no C launcher")

    def get_benchmarker(self):
        def benchmark(*args, **kwargs):
            raise RuntimeError(
                "an emulated device can't be timed: give the kernel one config instead of "
                "autotuning it"
            )

        return benchmark

    def get_empty_cache_for_benchmark(self):
        return None

    def clear_cache(self, cache: None) -> None:
        pass


class _Utils:
    def get_device_properties(self, device: str) -> dict[str, int]:
        return {
            "max_shared_mem": MAX_SHARED_BYTES,
            "max_num_regs": 65536,
            "multiprocessor_count": EmulatedDevice.current().sms,
            "warpSize": 32,
        }

    def load_binary(self, name: str, cubin: bytes, shared: int, device: str):
        # Module None: nothing that Triton would want to unload when no such driver is active.
        return None, name, 0, 0, 1024

    def unload_module(self, module: None) -> None:
        pass


class Launcher:
    """Launches one compiled kernel; made by Triton from its source and metadata."""

    def __init__(self, source: Any, metadata: Any):
        self._signature = tuple(source.signature.values())
        self._names = tuple(source.signature)
        self._metadata = metadata
        self._ptx = _ptx(metadata.hash, metadata.name)

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: str,
        packed_metadata: Any,
        launch_metadata: Any,
        enter_hook: Any,
        exit_hook: Any,
        *args: Any,
    ) -> None:
        grid = grid_x, grid_y, grid_z
        device = EmulatedDevice.current()
        if device is None:
            raise RuntimeError(f"{function} was compiled for an emulated device; none is active")
        if 0 in grid:
            return
        memory = GlobalMemory()
        parameters = list(self._parameters(memory, args))
        scratch = [self._scratch(memory, kind, grid) for kind in ("global", "profile")]
        parameters += [0 if buffer is None else buffer.data_ptr() for buffer in scratch]
        if enter_hook is not None:
            enter_hook(launch_metadata)
        report = run_ptx(
            self._ptx,
            entry=self._metadata.name,
            grid=grid,
            parameters=parameters,
            memory=memory,
            shared_bytes=self._metadata.shared,
            cluster=tuple(self._metadata.cluster_dims),
            sms=device.sms,
            policy=device.policy,
            seed=device.seed,
            max_steps=device.max_steps,
        )
        device.launches.append(report)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _parameters(self, memory: GlobalMemory, args: tuple) -> Iterator[Parameter]:
        tensor_maps = iter(self._metadata.tensordesc_meta or ())
        for name, kind, arg in _flat(self._names, self._signature, args):
            if kind.startswith("tensordesc"):
                _add(memory, name, arg.base)
                yield _tensor_map(arg, next(tensor_maps))
                yield from arg.shape
                yield from arg.strides
            elif kind.startswith("*"):
                yield _pointer(memory, name, arg)
            elif kind in SCALARS:
                yield int.from_bytes(struct.pack(SCALARS[kind], arg), "little")
            elif kind == "bf16":
                yield int(round_bf16(np.array([arg], np.float32))[0])
            else:
                yield int(arg)

    def _scratch(
        self, memory: GlobalMemory, kind: str, grid: tuple[int, int, int]
    ) -> torch.Tensor | None:
        size = getattr(self._metadata, f"{kind}_scratch_size")
        if not size:
            return None
        align = getattr(self._metadata, f"{kind}_scratch_align")
        buffer = torch.zeros(size * grid[0] * grid[1] * grid[2] + align, dtype=torch.uint8)
        buffer = buffer[-buffer.data_ptr() % align :]
        _add(memory, f"{kind} scratch", buffer)
        return buffer


@functools.lru_cache(maxsize=64)
def _ptx(kernel_hash: str, name: str) -> str:
    """PTX of a compiled kernel, from Triton's cache of compiler output."""
    name = name[:150]  # as Triton shortens file names
    files = get_cache_manager(kernel_hash).get_group(f"{name}.json") or {}
    if f"{name}.ptx" not in files:
        raise RuntimeError(f"the PTX of {name} is not in Triton's cache (hash {kernel_hash})")
    return Path(files[f"{name}.ptx"]).read_text()


def _flat(names: Any, kinds: Any, args: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, type and value of each argument that is a parameter, those of tuples one by one."""
    for name, kind, arg in zip(names, kinds, args, strict=True):
        if isinstance(kind, tuple):
            yield from _flat([f"{name}[{i}]" for i in range(len(kind))], kind, arg)
        elif kind != "constexpr":
            yield name, kind, arg


def _pointer(memory: GlobalMemory, name: str, arg: Any) -> int:
    if arg is None or isinstance(arg, int):
        return arg or 0
    _add(memory, name, arg)
    return arg.data_ptr()


def _add(memory: GlobalMemory, name: str, tensor: Any) -> None:
    """Make a tensor's whole storage accessible: kernels may address around a view."""
    tensor = getattr(tensor, "base", tensor)  # of a TensorWrapper
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} must be a CPU tensor on an emulated device: {tensor.device}")
    storage = tensor.untyped_storage()
    memory.add(storage.data_ptr(), storage.nbytes(), name)


def _tensor_map(descriptor: Any, meta: dict[str, Any]) -> TensorMap:
    """What cuTensorMapEncodeTiled would make of a host TensorDescriptor."""
    if meta.get("is_im2col") or meta["fp4_padded"]:
        raise UnsupportedPtx(f"tensor map that is not plainly tiled: {meta}")
    if descriptor.strides[-1] != 1:
        raise ValueError(f"a tensor descriptor's last stride must be 1: {descriptor.strides}")
    size = meta["elem_size"]
    return TensorMap(
        base=descriptor.base.data_ptr(),
        element_bytes=size,
        dims=tuple(descriptor.shape[::-1]),
        strides=tuple(stride * size for stride in descriptor.strides[-2::-1]),
        box=tuple(meta["block_size"][::-1]),
        swizzle=Swizzle.from_tensor_map(meta["swizzle"]),
        oob_fill="nan" if descriptor.padding == "nan" else "zero",
    )

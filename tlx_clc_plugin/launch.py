"""Kernel launches: through Triton's JIT, and replayed with next to no host time.

A call through the JIT costs the host about 50 us, most of it for finding the compiled kernel
again and for tensor maps. :class:`Replay` keeps both for one set of shapes and strides, and
hands the C launcher of Triton's driver its arguments.
"""

from __future__ import annotations

import contextlib
import threading

import torch
import triton
from triton import knobs
from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST
from triton.runtime.jit import JITFunction

from .kernels import KERNELS, OPTIONS
from .kernels.reduce import REDUCE_ROWS, reduce_kernel
from .operands import TMA_ALIGNMENT, Operand, descriptor
from .planning import GemmPlan

_JIT_RUN = JITFunction.run
_runtime = knobs.runtime
# Argument tuples kept per Replay: pointers repeat in a loop, but nothing bounds them.
_MAX_KEPT = 256

_counters: dict[tuple[int, int], torch.Tensor] = {}
_counters_lock = threading.Lock()


def launch(
    plan: GemmPlan,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
) -> list:
    """Run ``plan`` on operands that TMA can address; returns the compiled kernels it took."""
    kernel = KERNELS[plan.arch, plan.schedule]
    c = plan.config
    arguments = {
        "a_desc": descriptor(plan.a, a, (c.block_size_m, c.block_size_k)),
        "b_desc": descriptor(plan.b, b, (c.block_size_k, c.block_size_n)),
        "c_desc": descriptor(plan.out, out, (c.store_rows(plan.arch), c.subtile_n)),
        "bias_ptr": bias,
        "M": plan.M,
        "N": plan.N,
        "K": plan.K,
        "A_ROW_MAJOR": plan.a.row_major,
        "B_ROW_MAJOR": plan.b.row_major,
        **c.meta(kernel),
    }
    workspace = None
    if plan.arch == "hopper":
        if plan.split_tiles:
            workspace = new_workspace(plan, out.device)
        arguments |= {
            "workspace_desc": workspace_descriptor(plan, workspace),
            "counter_ptr": tile_counter(out.device) if plan.schedule == "dynamic" else None,
            "num_full_tiles": plan.full_tiles,
            "split_k": plan.split_k,
        }
    on_device = torch.cuda.device(out.device) if out.is_cuda else contextlib.nullcontext()
    with on_device:
        compiled = [kernel[plan.grid](**arguments, **OPTIONS)]
        if plan.split_tiles:
            compiled.append(
                reduce_kernel[reduce_grid(plan)](
                    workspace,
                    out,
                    bias,
                    plan.M,
                    plan.N,
                    plan.full_tiles,
                    plan.split_k,
                    out.stride(0),
                    BLOCK_SIZE_M=c.block_size_m,
                    BLOCK_SIZE_N=c.block_size_n,
                    GROUP_SIZE_M=c.group_size_m,
                    ROWS=REDUCE_ROWS,
                    num_warps=4,
                    launch_pdl=True,
                )
            )
    return compiled


class Replay:
    """A launch made ready, for operands of one shape, stride and type on one GPU.

    ``kernels``: what :func:`launch` returned for the same plan. Tensor maps depend on nothing
    but an address and what is fixed here, so they stay right when memory is freed and reused.
    """

    def __init__(self, plan: GemmPlan, a, b, out, bias, kernels: list):
        c = plan.config
        self._plan = plan
        self._like_out = torch.empty((1, 1), dtype=out.dtype, device=out.device).expand(out.shape)
        self._device, self._index = out.device, out.device.index
        self._dynamic = plan.schedule == "dynamic"
        self._launch = triton.runtime.driver.active.utils.launch
        self._kernel, *self._reduce = kernels
        self._kept: dict[tuple, list] = {}
        self._approved: set[tuple] = set()
        maps = iter(self._kernel.metadata.tensordesc_meta)
        boxes = (c.block_size_m, c.block_size_k), (c.block_size_k, c.block_size_n)
        self._a = _MapMaker(next(maps), descriptor(plan.a, a, boxes[0]))
        self._b = _MapMaker(next(maps), descriptor(plan.b, b, boxes[1]))
        self._c = _MapMaker(
            next(maps), descriptor(plan.out, out, (plan.config.store_rows(plan.arch), c.subtile_n))
        )
        if plan.split_tiles:
            self._w = _MapMaker(
                next(maps), workspace_descriptor(plan, new_workspace(plan, out.device))
            )
        self._constants = {
            "M": plan.M,
            "N": plan.N,
            "K": plan.K,
            "num_full_tiles": plan.full_tiles,
            "split_k": plan.split_k,
        }
        self._stride_cm = out.stride(0)

    def new_out(self) -> torch.Tensor:
        """An uninitialised, contiguous output."""
        return torch.empty_like(self._like_out)

    def __call__(self, a, b, out, bias, *, new: bool) -> bool:
        """Launch on the current stream; False, with nothing done, where only the plain path will.

        That is so while Triton's JIT is observed (patched, or with hooks), while another device
        is current, and for addresses that :meth:`approve` does not know, unless ``out`` is
        ``new`` and so overlaps no input.
        """
        if (
            JITFunction.run is not _JIT_RUN
            or _runtime.launch_enter_hook.calls
            or _runtime.launch_exit_hook.calls
            or torch._C._cuda_getDevice() != self._index
        ):
            return False
        workspace = new_workspace(self._plan, self._device) if self._reduce else None
        counter = tile_counter(self._device) if self._dynamic else None
        addresses = (
            a.data_ptr(),
            b.data_ptr(),
            out.data_ptr(),
            None if bias is None else bias.data_ptr(),
            None if workspace is None else workspace.data_ptr(),
            None if counter is None else counter.data_ptr(),
        )
        kept = self._kept.get(addresses)
        if kept is None:
            # TMA needs alignment; the kernel may have been compiled for an aligned bias.
            if any(address % TMA_ALIGNMENT for address in addresses[:4] if address):
                return False
            if not new and addresses[:4] not in self._approved:
                return False
            kept = self._keep(*addresses)
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        for grid, arguments in kept:
            self._launch(*grid, stream, *arguments)
        return True

    def approve(self, a, b, out, bias) -> None:
        """Note that ``out`` was found to overlap no input."""
        if len(self._approved) >= _MAX_KEPT:
            self._approved.clear()
        self._approved.add(tuple(None if x is None else x.data_ptr() for x in (a, b, out, bias)))

    def _keep(self, a, b, c, bias, workspace, counter) -> list:
        """Make the launches for these addresses ready, and remember them."""
        plan = self._plan
        values = self._constants | {"bias_ptr": bias, "counter_ptr": counter}
        maps = {"a_desc": self._a(a), "b_desc": self._b(b), "c_desc": self._c(c)}
        if workspace:
            maps["workspace_desc"] = self._w(workspace)
        arguments = []
        for name in self._kernel.src.fn.arg_names:
            arguments += maps[name] if name in maps else [values.get(name)]
        launches = [(plan.grid, _launcher_arguments(self._kernel, arguments))]
        if workspace:
            values |= {"workspace_ptr": workspace, "c_ptr": c, "stride_cm": self._stride_cm}
            arguments = [values.get(name) for name in reduce_kernel.arg_names]
            grid = (*reduce_grid(plan), 1)
            launches.append((grid, _launcher_arguments(self._reduce[0], arguments)))
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[a, b, c, bias, workspace, counter] = launches
        return launches


def _launcher_arguments(kernel, arguments: list) -> tuple:
    """What the driver's launch function takes after grid and stream."""
    launcher = kernel.run
    return (
        kernel.function,
        launcher.launch_cooperative_grid,
        launcher.launch_pdl,
        kernel.packed_metadata,
        None,  # launch metadata and hooks
        None,
        None,
        None,  # scratch memory
        None,
        launcher.arg_annotations,
        launcher.kernel_signature,
        tuple(arguments),
    )


class _MapMaker:
    """Makes tensor maps that differ in their address, as kernel arguments."""

    def __init__(self, meta: dict, desc):
        fill = triton.runtime.driver.active.utils.fill_tma_descriptor_tiled
        fixed = (
            meta["swizzle"],
            meta["elem_size"],
            TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]],
            meta["block_size"],
            desc.shape,
            desc.strides,
            0,
        )
        self._make = lambda address: [fill(address, *fixed), *desc.shape, *desc.strides]

    def __call__(self, address: int) -> list:
        return self._make(address)


def new_workspace(plan: GemmPlan, device: torch.device) -> torch.Tensor:
    """Uninitialised fp32 partial sums: a block per work item of the split tiles."""
    c = plan.config
    rows = plan.split_tiles * plan.split_k * c.block_size_m
    return torch.empty((rows, c.block_size_n), dtype=torch.float32, device=device)


def workspace_descriptor(plan: GemmPlan, workspace: torch.Tensor | None):
    """TMA descriptor of the workspace: the epilogue's bytes, holding half as many columns."""
    if workspace is None:
        return None
    box = (plan.config.store_rows(plan.arch), plan.config.subtile_n // 2)
    return descriptor(Operand("workspace", True), workspace, box)


def reduce_grid(plan: GemmPlan) -> tuple[int, int]:
    return plan.split_tiles, plan.config.block_size_m // REDUCE_ROWS


def tile_counter(device: torch.device) -> torch.Tensor:
    """The dynamic scheduler's two zeros, which a launch leaves as zeros.

    One pair per stream, since launches of one stream follow one another. A captured launch gets
    its own, zeroed by the graph: it may be replayed beside others on any stream. So does an
    emulated one.
    """
    if device.type == "cpu" or torch._C._cuda_isCurrentStreamCapturing():
        return torch.zeros(2, dtype=torch.int32, device=device)
    key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
    counter = _counters.get(key)
    if counter is None:
        with _counters_lock:
            counter = _counters.setdefault(key, torch.zeros(2, dtype=torch.int32, device=device))
    return counter

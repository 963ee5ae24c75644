"""The front door: check the operands, plan the launch, run it."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

import torch

from .config import GemmConfig, check_config, check_schedule
from .heuristics import select_config
from .operands import (
    Operand,
    descriptor,
    inspect_input,
    inspect_output,
    overlaps,
    overlaps_itself,
    padded_like,
    tma_readable,
)

DTYPES = (torch.float16, torch.bfloat16)
# Tensor cores of this kind (tcgen05) and CLC: data-centre Blackwell, not sm_120.
_BLACKWELL_MAJOR = 10
_B200_SMS = 148
# TMA coordinates are 32-bit; the last tile's may lie a tile beyond the matrix.
_MAX_EXTENT = 2**31 - 512
# A grid's x extent; tile numbers are 32-bit as well.
_MAX_TILES = 2**31 - 1


@dataclass(frozen=True)
class GemmPlan:
    """What :func:`matmul` does for operands like these: a pure description, holding no tensor.

    ``grid``: CTAs launched, (0, 1, 1) where there is nothing to multiply. ``copies``: the
    operands ("a", "b", "bias", "out") copied inside the call since TMA can't address them.
    ``reasons``: why this config and each copy, in words.
    """

    schedule: str
    config: GemmConfig
    M: int
    N: int
    K: int
    dtype: torch.dtype
    num_sms: int
    grid: tuple[int, int, int]
    a: Operand
    b: Operand
    out: Operand
    copies: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def tiles(self) -> int:
        """Output tiles of the problem."""
        c = self.config
        return -(-self.M // c.block_size_m) * -(-self.N // c.block_size_n)

    def __str__(self) -> str:
        layout = {True: "row-major", False: "column-major"}
        lines = [
            f"{self.schedule} {self.M}x{self.N}x{self.K} {str(self.dtype).removeprefix('torch.')}"
            f" on {self.num_sms} SMs: {self.tiles} tiles, grid {self.grid}",
            f"a {layout[self.a.row_major]}, b {layout[self.b.row_major]}, "
            f"copies: {', '.join(self.copies) or 'none'}",
            str(self.config),
        ]
        return "\n".join(lines + [f"- {reason}" for reason in self.reasons])


def plan(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    schedule: str = "clc",
    config: GemmConfig | None = None,
    out: torch.Tensor | None = None,
    num_sms: int | None = None,
) -> GemmPlan:
    """How ``matmul`` with these arguments runs, and why; nothing is computed or copied.

    ``num_sms``: SMs to plan for; by default those of the operands' GPU or of the active
    emulated device, and 148 (B200) for CPU tensors without one. Raises as :func:`matmul`.
    """
    check_schedule(schedule)
    _check_operands(a, b, bias, out)
    (M, K), N = a.shape, b.shape[1]
    reasons = []
    if num_sms is None:
        num_sms, reason = _device_sms(a.device)
        reasons += reason
    elif type(num_sms) is not int or num_sms < 1:
        raise ValueError(f"num_sms must be a positive int, got {num_sms!r}")

    if config is None:
        config = select_config(M, N, K, num_sms, schedule=schedule, bias=bias is not None)
        reasons.append("config: fewest modelled cycles (heuristics.py), no tuning")
    else:
        check_config(config, schedule, bias=bias is not None)
        reasons.append("config: as given")

    # A new output is contiguous and aligned; only its row stride can be odd.
    target = torch.empty((M, N), dtype=a.dtype, device="meta") if out is None else out
    operands = inspect_input("a", a), inspect_input("b", b), inspect_output("out", target)
    copies = [(operand.name, operand.copy_reason) for operand in operands if operand.copied]
    if bias is not None and N > 1 and bias.stride(0) != 1:
        copies.append(("bias", f"bias: its stride is {bias.stride(0)}, not 1"))
    elif bias is not None and bias.is_neg():
        copies.append(("bias", "bias: its values lie in memory with the opposite sign"))

    tiles = -(-M // config.block_size_m) * -(-N // config.block_size_n)
    if tiles > _MAX_TILES:
        raise ValueError(f"M x N must be at most {_MAX_TILES} tiles, got {M} x {N}: {tiles} tiles")
    if K == 0 or tiles == 0:
        tiles, copies = 0, []
    ctas = tiles if schedule == "clc" else min(tiles, num_sms)
    return GemmPlan(
        schedule,
        config,
        M,
        N,
        K,
        a.dtype,
        num_sms,
        (ctas, 1, 1),
        *operands,
        copies=tuple(name for name, _ in copies),
        reasons=(*reasons, *(f"copy of {reason}" for _, reason in copies)),
    )


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    schedule: str = "clc",
    config: GemmConfig | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``a @ b (+ bias)`` by a warp-specialised Blackwell kernel; forward only (no autograd).

    ``a``: (M, K), ``b``: (K, N), both float16 or both bfloat16, any strides. ``bias``: (N,), the
    same type, added in fp32 before the one rounding to that type. ``schedule``: "persistent" or
    "clc". ``out``: (M, N), the same type, overlapping no input. The result is ``out``, or a new
    contiguous tensor. Sums are accumulated in fp32.

    CUDA tensors run on their GPU, CPU tensors on the active
    :class:`~tlx_clc_plugin.emulator.EmulatedDevice`. Where TMA can't address an operand it is
    copied first (:func:`plan` tells); no other kernel is ever substituted.

    Raises TypeError or ValueError for operands or a config that don't fit (named with their
    value), RuntimeError where the device can't run the kernel.
    """
    launch = plan(a, b, bias=bias, schedule=schedule, config=config, out=out)
    _check_device(a.device, schedule)
    if out is None:
        out = torch.empty((launch.M, launch.N), dtype=a.dtype, device=a.device)
    if launch.grid[0] == 0:
        # An empty sum: what torch.matmul gives.
        return out.zero_() if bias is None else out.copy_(bias.detach().expand_as(out))
    a, b = tma_readable(launch.a, a.detach()), tma_readable(launch.b, b.detach())
    bias = None if bias is None else bias.detach().resolve_neg().contiguous()
    target = padded_like(out, row_major=True) if launch.out.copied else out
    _launch(launch, a, b, target, bias)
    return out.copy_(target) if launch.out.copied else out


def _launch(
    launch: GemmPlan,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
) -> None:
    from .kernels import KERNELS, OPTIONS

    c = launch.config
    kernel = KERNELS[launch.schedule]
    on_device = torch.cuda.device(a.device) if a.is_cuda else contextlib.nullcontext()
    with on_device:
        kernel[launch.grid](
            descriptor(launch.a, a, (c.block_size_m, c.block_size_k)),
            descriptor(launch.b, b, (c.block_size_k, c.block_size_n)),
            descriptor(launch.out, out, (c.block_size_m, c.subtile_n)),
            bias,
            launch.M,
            launch.N,
            launch.K,
            A_ROW_MAJOR=launch.a.row_major,
            B_ROW_MAJOR=launch.b.row_major,
            **c.meta(),
            **OPTIONS,
        )


def _check_operands(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor | None
) -> None:
    given = {"a": a, "b": b, "bias": bias, "out": out}
    given = {name: x for name, x in given.items() if x is not None or name in ("a", "b")}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
        if x.layout != torch.strided:
            raise TypeError(f"{name} must be a dense tensor, got layout {x.layout}")
    for name, x in given.items():
        rank = 1 if name == "bias" else 2
        if x.dim() != rank:
            raise ValueError(f"{name} must be {rank}-D, got shape {tuple(x.shape)}")
    if a.dtype not in DTYPES:
        raise TypeError(f"a must be float16 or bfloat16, got {a.dtype}")
    for name, x in given.items():
        if x.dtype != a.dtype:
            raise TypeError(f"{name} must have the dtype of a, {a.dtype}, got {x.dtype}")
        if x.device != a.device:
            raise ValueError(f"{name} must be on the device of a, {a.device}, got {x.device}")
    (M, K), (K_b, N) = a.shape, b.shape
    if K != K_b:
        raise ValueError(
            f"a and b must agree in K, got a of shape {(M, K)} and b of shape {(K_b, N)}"
        )
    for name, extent in (("M", M), ("N", N), ("K", K)):
        if extent > _MAX_EXTENT:
            raise ValueError(f"{name} must be at most {_MAX_EXTENT}, got {extent}")
    if bias is not None and bias.shape != (N,):
        raise ValueError(f"bias must have length N = {N}, got {bias.shape[0]}")
    if out is not None:
        _check_out(out, (M, N), {n: x for n, x in given.items() if n != "out"})


def _check_out(out: torch.Tensor, shape: tuple[int, int], inputs: dict[str, torch.Tensor]) -> None:
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {tuple(out.shape)}")
    if overlaps_itself(out):
        raise ValueError(f"out must not share memory between elements, got strides {out.stride()}")
    for name, x in inputs.items():
        if overlaps(out, x.unsqueeze(0) if x.dim() == 1 else x):
            raise ValueError(f"out must not overlap {name} (or not so that it can't be ruled out)")


@functools.cache
def _cuda_properties(index: int) -> tuple[str, int, int, int]:
    properties = torch.cuda.get_device_properties(index)
    return properties.name, properties.major, properties.minor, properties.multi_processor_count


def _device_sms(device: torch.device) -> tuple[int, list[str]]:
    from .emulator import EmulatedDevice

    if device.type == "cuda":
        return _cuda_properties(device.index)[3], []
    if (emulated := EmulatedDevice.current()) is not None:
        return emulated.sms, []
    return _B200_SMS, [f"num_sms: {_B200_SMS} (B200), since the operands are not on a GPU"]


def _check_device(device: torch.device, schedule: str) -> None:
    from .emulator import EmulatedDevice

    if device.type == "cuda":
        name, major, minor, _ = _cuda_properties(device.index)
        if major != _BLACKWELL_MAJOR:
            raise RuntimeError(
                f"schedule {schedule!r} needs a data-centre Blackwell GPU (sm_100 or sm_103), "
                f"but {device} is {name} (sm_{major}{minor})"
            )
    elif device.type != "cpu":
        raise RuntimeError(f"a must be a CUDA tensor, or a CPU tensor to emulate, got {device}")
    elif EmulatedDevice.current() is None:
        raise RuntimeError(
            "a is a CPU tensor: use a Blackwell GPU, or emulate one with "
            "`with tlx_clc_plugin.emulator.EmulatedDevice(): ...`"
        )

"""The front door: check the operands, plan the launch, run it."""

from __future__ import annotations

import functools

import torch
import triton

from . import __version__
from .autotune import AUTOTUNE, Problem, choose, measurer, random_like
from .config import ARCHES, GemmConfig, check_config, check_schedule
from .heuristics import select_config
from .launch import Replay, launch
from .operands import (
    Operand,
    inspect_input,
    inspect_output,
    overlaps,
    overlaps_itself,
    padded_like,
    tma_readable,
)
from .planning import GemmPlan, count_tiles, divide_work

DTYPES = (torch.float16, torch.bfloat16)
_B200_SMS, _H200_SMS = 148, 132
# TMA coordinates are 32-bit; the last tile's may lie a tile beyond the matrix.
_MAX_EXTENT = 2**31 - 512
# A grid's x extent; tile numbers are 32-bit as well.
_MAX_TILES = 2**31 - 1
_MAX_REPLAYS = 1024
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)

_replays: dict[tuple, Replay] = {}


def plan(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    schedule: str = "clc",
    config: GemmConfig | str | None = None,
    out: torch.Tensor | None = None,
    num_sms: int | None = None,
) -> GemmPlan:
    """How ``matmul`` with these arguments runs, and why; nothing is computed or copied.

    Except with ``config="autotune"``, which tunes if no choice is remembered. ``num_sms``: SMs to
    plan for; by default those of the operands' GPU or of the active emulated device, and 148
    (B200) for CPU tensors without one. Raises as :func:`matmul`.
    """
    check_schedule(schedule)
    _check_operands(a, b, bias, out)
    (M, K), N = a.shape, b.shape[1]
    arch, device_sms, reasons = _device(a.device, schedule)
    check_schedule(schedule, arch)
    if num_sms is None:
        num_sms = device_sms
    elif type(num_sms) is not int or num_sms < 1:
        raise ValueError(f"num_sms must be a positive int, got {num_sms!r}")

    # A new output is contiguous and aligned; only its row stride can be odd.
    target = torch.empty((M, N), dtype=a.dtype, device="meta") if out is None else out
    operands = inspect_input("a", a), inspect_input("b", b), inspect_output("out", target)

    with_bias = bias is not None
    if isinstance(config, str):
        if config != AUTOTUNE:
            raise ValueError(f"config must be a GemmConfig or {AUTOTUNE!r}, got {config!r}")
        if num_sms != device_sms:
            raise ValueError(f"num_sms must be that of the GPU to autotune, got {num_sms}")
        _check_tunable(a.device)
        if 0 in (M, N, K):
            config = None  # nothing to time
    if config is None:
        config = select_config(M, N, K, num_sms, schedule=schedule, bias=with_bias, arch=arch)
        reasons.append("config: fewest modelled cycles (heuristics.py), no tuning")
    elif config == AUTOTUNE:
        config = _tuned(a, b, bias, schedule, operands[:2])
        reasons.append("config: autotuned, the fastest of those tried on this GPU")
    else:
        check_config(config, schedule, bias=with_bias, arch=arch)
        reasons.append("config: as given")

    copies = [(operand.name, operand.copy_reason) for operand in operands if operand.copied]
    if with_bias and N > 1 and bias.stride(0) != 1:
        copies.append(("bias", f"bias: its stride is {bias.stride(0)}, not 1"))
    elif bias is not None and bias.is_neg():
        copies.append(("bias", "bias: its values lie in memory with the opposite sign"))

    tiles = count_tiles(M, N, config)
    if tiles > _MAX_TILES:
        raise ValueError(f"M x N must be at most {_MAX_TILES} tiles, got {M} x {N}: {tiles} tiles")
    if K == 0 or tiles == 0:
        tiles, copies = 0, []
    k_tiles = -(-K // config.block_size_k)
    ctas, full_tiles, split_k = divide_work(tiles, k_tiles, num_sms, schedule, config.split_k)
    return GemmPlan(
        schedule,
        arch,
        config,
        M,
        N,
        K,
        a.dtype,
        num_sms,
        (ctas, 1, 1),
        full_tiles,
        split_k,
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
    config: GemmConfig | str | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``a @ b (+ bias)`` by a warp-specialised Blackwell kernel; forward only (no autograd).

    ``a``: (M, K), ``b``: (K, N), both float16 or both bfloat16, any strides. ``bias``: (N,), the
    same type, added in fp32 before the one rounding to that type. ``schedule``: "persistent" or
    "clc". ``out``: (M, N), the same type, overlapping no input. The result is ``out``, or a new
    contiguous tensor. Sums are accumulated in fp32. ``config``: by default the heuristic's;
    "autotune" for the fastest of about 24 tried, on a GPU only, which takes some thirty seconds
    once for a problem and is remembered on disk (autotune.py).

    CUDA tensors run on their GPU, CPU tensors on the active
    :class:`~tlx_clc_plugin.emulator.EmulatedDevice`. Where TMA can't address an operand it is
    copied first (:func:`plan` tells); no other kernel is ever substituted.

    Raises TypeError or ValueError for operands or a config that don't fit (named with their
    value), RuntimeError where the device can't run the kernel.
    """
    key = _call_key(a, b, bias, schedule, config, out)
    if key is not None and (replay := _replays.get(key)) is not None:
        target = replay.new_out() if out is None else out
        if replay(a, b, target, bias, new=out is None):
            return target
    gemm_plan = plan(a, b, bias=bias, schedule=schedule, config=config, out=out)
    _check_device(a.device)
    if out is None:
        out = torch.empty((gemm_plan.M, gemm_plan.N), dtype=a.dtype, device=a.device)
    if gemm_plan.grid[0] == 0:
        # An empty sum: what torch.matmul gives.
        return out.zero_() if bias is None else out.copy_(bias.detach().expand_as(out))
    a, b = tma_readable(gemm_plan.a, a.detach()), tma_readable(gemm_plan.b, b.detach())
    bias = None if bias is None else bias.detach().resolve_neg().contiguous()
    target = padded_like(out, row_major=True) if gemm_plan.out.copied else out
    kernels = launch(gemm_plan, a, b, target, bias)
    if key is not None and not gemm_plan.copies:
        if key not in _replays:
            if len(_replays) >= _MAX_REPLAYS:
                _replays.clear()
            _replays[key] = Replay(gemm_plan, a, b, out, bias, kernels)
        _replays[key].approve(a, b, out, bias)
    return out.copy_(target) if gemm_plan.out.copied else out


def _call_key(a, b, bias, schedule, config, out) -> tuple | None:
    """All that a plan depends on but addresses; None for what is never replayed.

    Subclasses of tensors may mean anything; what else is not of these types is :func:`plan`'s to
    refuse.
    """
    if (
        type(a) not in _PLAIN_TENSORS
        or type(b) not in _PLAIN_TENSORS
        or not a.is_cuda
        or type(schedule) is not str
        or type(config) not in (type(None), GemmConfig, str)
    ):
        return None
    key = [schedule, config]
    for x in (a, b, bias, out):
        if x is None:
            key.append(None)
        elif type(x) in _PLAIN_TENSORS:
            key += x.shape, x.stride(), x.dtype, x.get_device(), x.is_neg()
        else:
            return None
    return tuple(key)


def _check_tunable(device: torch.device) -> None:
    if device.type != "cuda":
        raise RuntimeError(
            f"config={AUTOTUNE!r} needs a GPU, and a is on {device}: leave config out for the "
            "heuristic's"
        )
    _check_device(device)


def _tuned(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    schedule: str,
    operands: tuple[Operand, Operand],
) -> GemmConfig:
    """The autotuned config: remembered, or found by running on operands like these."""
    from .kernels import KERNELS

    (M, K), N = a.shape, b.shape[1]
    gpu, major, minor, num_sms = _cuda_properties(a.device.index)
    arch = ARCHES[major]
    layouts = (
        ("row-major" if x.row_major else "column-major") + ", copied" * x.copied for x in operands
    )
    problem = Problem(
        gpu,
        f"{major}.{minor}",
        num_sms,
        triton.__version__,
        __version__,
        KERNELS[arch, schedule].cache_key,
        arch,
        schedule,
        *(M, N, K),
        str(a.dtype).removeprefix("torch."),
        *layouts,
        bias is not None,
    )

    def prepare():
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"config={AUTOTUNE!r} can't tune while a CUDA graph is captured: call matmul once "
                "before the capture"
            )
        from triton.testing import do_bench

        like = [None if x is None else random_like(x, seed) for seed, x in enumerate((a, b, bias))]

        def run(config: GemmConfig, out: torch.Tensor | None) -> torch.Tensor:
            return matmul(*like[:2], bias=like[2], schedule=schedule, config=config, out=out)

        return measurer(run, *like, lambda call: do_bench(call, return_mode="median"))

    with torch.cuda.device(a.device):
        return choose(problem, prepare)


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


def _device(device: torch.device, schedule: str) -> tuple[str, int, list[str]]:
    """Architecture and SM count to plan for, and reasons where they are not the device's own."""
    if device.type == "cuda":
        _, major, _, num_sms = _cuda_properties(device.index)
        return ARCHES.get(major, "blackwell"), num_sms, []
    from .emulator import EmulatedDevice

    if (emulated := EmulatedDevice.current()) is not None:
        return ARCHES[emulated.capability[0]], emulated.sms, []
    if schedule == "dynamic":
        return "hopper", _H200_SMS, [f"planned for an H200 ({_H200_SMS} SMs), not being on a GPU"]
    return "blackwell", _B200_SMS, [f"planned for a B200 ({_B200_SMS} SMs), not being on a GPU"]


def _check_device(device: torch.device) -> None:
    if device.type == "cuda":
        name, major, minor, _ = _cuda_properties(device.index)
        if major not in ARCHES:
            raise RuntimeError(
                "the kernels need a Hopper (sm_90) or data-centre Blackwell GPU (sm_100, sm_103), "
                f"but {device} is {name} (sm_{major}{minor})"
            )
        return
    if device.type != "cpu":
        raise RuntimeError(f"a must be a CUDA tensor, or a CPU tensor to emulate, got {device}")
    from .emulator import EmulatedDevice

    if EmulatedDevice.current() is None:
        raise RuntimeError(
            "a is a CPU tensor: use a GPU, or emulate one with "
            "`with tlx_clc_plugin.emulator.EmulatedDevice(): ...`"
        )

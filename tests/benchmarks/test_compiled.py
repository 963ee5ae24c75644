"""What compiling gives and costs, without a GPU: machine instructions, registers, shared memory,
and the seconds of compiling as a ratio to those of a stock Triton kernel compiled in between."""

from __future__ import annotations

import functools
import time
from statistics import median

import pytest
import triton
from test_emulated import ISAS
from triton.compiler import ASTSource

from tlx_clc_plugin import offline
from tlx_clc_plugin.config import ARCH_SCHEDULES
from tlx_clc_plugin.guard.pytest_plugin import Planned, Record, Wrong
from tlx_clc_plugin.kernels import TARGETS
from tlx_clc_plugin.kernels.triton_tutorial import CONFIG, OPTIONS, triton_tutorial_kernel

# The heuristic's config for it is the one compiled.
SHAPE = (8192, 8192, 8192)
ROUNDS = 3
KERNELS = [(arch, schedule) for arch, names in ARCH_SCHEDULES.items() for schedule in names]


def _planned(arch: str, schedule: str, dtype: str, metric: str) -> Planned:
    extents = "x".join(map(str, SHAPE))
    repro = f"tlx-clc compile --arch {arch} --schedule {schedule} --shape {extents}"
    return Planned(
        SHAPE,
        dtype,
        "tn",
        f"tlx_{schedule}.{ISAS[arch]}",
        "compile",
        metric,
        "lower",
        f"{repro} --precision {dtype}",
        several=True,
    )


def _cells(metrics: tuple[str, ...], dtypes: tuple[str, ...]) -> list:
    cells = [
        (arch, schedule, _planned(arch, schedule, dtype, metric))
        for arch, schedule in KERNELS
        for dtype in dtypes
        for metric in metrics
    ]
    return [pytest.param(*values, id=str(values[-1])) for values in cells]


@functools.cache
def _variant(arch: str, schedule: str, dtype: str) -> offline.Variant:
    (variant,) = offline.variants(arch, (schedule,), ("tn",), (dtype,), bias=False, shape=SHAPE)
    return variant


@functools.cache
def _examined(variant: offline.Variant) -> dict[str, int]:
    kernel, _ = offline.compile_variant(variant)
    statistics = offline.examine(kernel)
    if faults := offline.faults(variant.schedule, statistics):
        raise Wrong("; ".join(faults))
    return {
        "sass_instructions": offline.sass_opcodes(kernel.asm["sass"]).total(),
        "registers": statistics.registers,
        "smem_bytes": statistics.smem,
    }


@pytest.mark.parametrize(
    ("arch", "schedule", "cell"),
    _cells(("sass_instructions", "registers", "smem_bytes"), ("fp16", "bf16")),
)
def test_resources(arch: str, schedule: str, cell: Planned, record: Record) -> None:
    variant = _variant(arch, schedule, cell.dtype)
    record([_examined(variant)[cell.metric]], config=str(variant.config))


@pytest.mark.parametrize(("arch", "schedule", "cell"), _cells(("compile_ratio",), ("fp16",)))
def test_compile_time(arch: str, schedule: str, cell: Planned, record: Record) -> None:
    variant = _variant(arch, schedule, cell.dtype)
    ours, ratios = [], []
    for _ in range(ROUNDS):
        ours.append(offline.compile_variant(variant)[1])
        ratios.append(ours[-1] / _stock_compile_seconds(arch))
    record(
        ours,
        value=median(ratios),
        band=(min(ratios), max(ratios)),
        config=str(variant.config),
        figures={"compile_seconds": median(ours)},
    )


def _stock_compile_seconds(arch: str) -> float:
    names = triton_tutorial_kernel.arg_names
    signature = {name: "constexpr" if name in CONFIG else "i32" for name in names}
    signature |= dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16")
    constants = {(names.index(name),): value for name, value in CONFIG.items()}
    source = ASTSource(triton_tutorial_kernel, signature, constexprs=constants)
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True
        start = time.perf_counter()
        triton.compile(source, target=TARGETS[arch], options=OPTIONS)
        return time.perf_counter() - start

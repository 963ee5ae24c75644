"""Warp instructions that the emulator executes of our kernels: no clock, no noise, any machine.

A change of 1 % is a change of the kernel or of its compiler. Results are checked first.
"""

from __future__ import annotations

import pytest

from tlx_clc_plugin.accuracy import check
from tlx_clc_plugin.bench.inputs import Shape, make
from tlx_clc_plugin.bench.poison import NewMemoryIsNan
from tlx_clc_plugin.config import ARCH_SCHEDULES
from tlx_clc_plugin.emulator import EmulatedDevice
from tlx_clc_plugin.gemm import matmul, plan
from tlx_clc_plugin.guard.pytest_plugin import Planned, Record, Wrong

ISAS = {"blackwell": "sm_100a", "hopper": "sm_90a"}
# Whole tiles, several of them for each CTA; and edges in every dimension.
SHAPES = (Shape(512, 512, 256), Shape(300, 520, 200))
SMS, SEED = 4, 0


def _planned(arch: str, schedule: str, shape: Shape, dtype: str, layout: str) -> Planned:
    extents = "x".join(map(str, shape))
    repro = (
        f"tritonbench --op gemm --device emulated --arch {ISAS[arch]} --sms {SMS} --seed {SEED} "
        f"--only tlx_{schedule} --shapes {extents} --precision {dtype} --layout {layout} "
        "--metrics instructions,accuracy"
    )
    backend = f"tlx_{schedule}.{ISAS[arch]}"
    return Planned(tuple(shape), dtype, layout, backend, "emulated", "instructions", "lower", repro)


CELLS = [
    pytest.param(
        arch,
        schedule,
        _planned(arch, schedule, shape, dtype, layout),
        id=str(_planned(arch, schedule, shape, dtype, layout)),
    )
    for arch, schedules in ARCH_SCHEDULES.items()
    for schedule in schedules
    for shape in SHAPES
    for dtype in ("fp16", "bf16")
    for layout in ("tn", "tt")
]


@pytest.mark.parametrize(("arch", "schedule", "cell"), CELLS)
def test_instructions(arch: str, schedule: str, cell: Planned, record: Record) -> None:
    a, b, _ = make(
        Shape(*cell.shape),
        precision=cell.dtype,
        layout=cell.layout,
        bias=False,
        device="cpu",
        seed=SEED,
    )
    with EmulatedDevice(arch=ISAS[arch], sms=SMS, policy="eager", seed=SEED) as device:
        config = plan(a, b, schedule=schedule).config
        with NewMemoryIsNan():
            output = matmul(a, b, schedule=schedule)
    verdict = check(output, a, b)
    if not verdict.ok:
        raise Wrong(verdict.reason)
    ctas = [cta for launch in device.launches for cta in launch.ctas]
    figures = {
        "relative_error": verdict.error,
        "ctas": float(len(ctas)),
        "stolen_tiles": float(sum(len(cta.stolen) for cta in ctas)),
    }
    instructions = sum(launch.instructions for launch in device.launches)
    record([instructions], config=str(config), figures=figures, seed=SEED)

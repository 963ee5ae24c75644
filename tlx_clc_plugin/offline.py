"""Compile the kernels for sm_100a or sm_90a without a GPU, and look at what came of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .config import ARCHES, GemmConfig, check_config, check_schedule

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

PRECISIONS = {"fp16": "float16", "bf16": "bfloat16"}
# tritonbench's names: a letter for a, one for b; t is row-major, n column-major.
LAYOUTS = ("tt", "tn", "nt", "nn")
# The machines that ``--shape`` asks the heuristic about: B200, H200.
SMS = {"blackwell": 148, "hopper": 132}
STAGES = ("ttgir", "ptx", "cubin", "sass")

# Opcodes of an instruction kind in PTX and in SASS. A query of a CLC response has no instruction
# of its own in SASS: its 16 bytes are taken apart by arithmetic.
Kinds = dict[str, tuple[str, str | None]]
_COMMON: Kinds = {
    "TMA load": (r"cp\.async\.bulk\.tensor\.\dd\.shared", r"UTMALDG"),
    "TMA store": (r"cp\.async\.bulk\.tensor\.\dd\.global", r"UTMASTG"),
    "mbarrier": (r"mbarrier\.", r"SYNCS\."),
}
KINDS: dict[str, Kinds] = {
    "blackwell": {
        "tcgen05.mma": (r"tcgen05\.mma\.", r"UTC\w*MMA"),
        **_COMMON,
        "try_cancel": (r"clusterlaunchcontrol\.try_cancel\.", r"UGETNEXTWORKID"),
        "query_cancel": (r"clusterlaunchcontrol\.query_cancel\.is_canceled\.", None),
    },
    "hopper": {
        "wgmma": (r"wgmma\.mma_async\.", r"HGMMA"),
        **_COMMON,
        "atomic add": (r"atom\.\S*add", r"ATOMG?\.\S*ADD"),
    },
}
# Kinds that the kernels of one schedule have to have, and no others may.
KIND_OWNERS = {"try_cancel": "clc", "query_cancel": "clc", "atomic add": "dynamic"}


@dataclass(frozen=True)
class Variant:
    """One kernel to compile: ``layout`` of :data:`LAYOUTS`, ``precision`` of :data:`PRECISIONS`,
    ``arch`` of :data:`KINDS`."""

    arch: str
    schedule: str
    config: GemmConfig
    layout: str
    precision: str
    bias: bool

    def __str__(self) -> str:
        return "_".join(
            (self.arch, self.schedule, self.layout, self.precision, *["bias"] * self.bias)
        )


@dataclass(frozen=True)
class Statistics:
    """What a compiled kernel needs of an SM, and its instructions by kind.

    ``registers``: per thread at launch. ``spills``: instructions on local memory (SASS LDL, STL).
    ``smem``: dynamic shared memory in bytes. ``tmem``: tensor memory in columns. ``ptx`` and
    ``sass``: how many instructions of each kind of the architecture; None where SASS has none such.
    """

    registers: int
    spills: int
    smem: int
    tmem: int
    ptx: dict[str, int]
    sass: dict[str, int | None]


def variants(
    arch: str,
    schedules: Iterable[str],
    layouts: Iterable[str],
    precisions: Iterable[str],
    *,
    bias: bool,
    config: GemmConfig | None = None,
    shape: tuple[int, int, int] | None = None,
) -> list[Variant]:
    """Every combination, with ``config`` for all of them; else with the one that the heuristic
    chooses for ``shape``, (M, N, K), on a B200 or H200; else with the default config.

    Raises ValueError for an invalid config or a schedule that ``arch`` has not.
    """
    from .heuristics import select_config

    found = []
    for schedule in schedules:
        check_schedule(schedule, arch)
        chosen = config or GemmConfig()
        if shape is not None:
            chosen = select_config(*shape, SMS[arch], schedule=schedule, bias=bias, arch=arch)
        check_config(chosen, schedule, bias=bias, arch=arch)
        found += [
            Variant(arch, schedule, chosen, layout, precision, bias)
            for layout in layouts
            for precision in precisions
        ]
    return found


def run(variants: list[Variant], *, output: Path | None = None) -> int:
    """Compile each variant and print a table; the exit status is 1 if any has a fault.

    ``output``: an existing directory to keep ttgir, ptx, cubin and sass in.
    """
    rows, found = [], []
    for variant in variants:
        kernel, seconds = compile_variant(variant)
        statistics = examine(kernel)
        rows.append(_row(variant, statistics, seconds))
        found += [f"{variant}: {fault}" for fault in faults(variant.schedule, statistics)]
        if output is not None:
            keep(kernel, output, str(variant))
    _print_table(variants, rows)
    for fault in found:
        print(f"tlx-clc compile: {fault}", file=sys.stderr)
    return int(bool(found))


def compile_variant(variant: Variant) -> tuple[CompiledKernel, float]:
    """The kernel, compiled anew whatever is in Triton's cache, and the seconds it took."""
    import torch
    import triton

    from .kernels import compile_kernel

    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True
        start = time.perf_counter()
        kernel = compile_kernel(
            variant.schedule,
            variant.config,
            dtype=getattr(torch, PRECISIONS[variant.precision]),
            a_row_major=variant.layout[0] == "t",
            b_row_major=variant.layout[1] == "t",
            bias=variant.bias,
            arch=variant.arch,
        )
        return kernel, time.perf_counter() - start


def examine(kernel: CompiledKernel) -> Statistics:
    """Statistics of a compiled kernel, by its PTX, its machine code and its metadata."""
    kinds = KINDS[ARCHES[kernel.metadata.target.arch // 10]]
    ptx, sass = ptx_opcodes(kernel.asm["ptx"]), sass_opcodes(kernel.asm["sass"])
    return Statistics(
        registers=registers(kernel.asm["cubin"]),
        spills=sum(count for op, count in sass.items() if re.match(r"(LDL|STL)\b", op)),
        smem=kernel.metadata.shared,
        tmem=kernel.metadata.tmem_size,
        ptx={kind: _count(ptx, pattern) for kind, (pattern, _) in kinds.items()},
        sass={
            kind: None if pattern is None else _count(sass, pattern)
            for kind, (_, pattern) in kinds.items()
        },
    )


def faults(schedule: str, statistics: Statistics) -> list[str]:
    """What is wrong with a kernel of ``schedule``, in words.

    Every kernel has to multiply, load, store and synchronise by the hardware's own instructions;
    a CLC kernel has to ask for work, a dynamic one to count, and only they may. Nothing may spill.
    """
    found = []
    for language, counts in (("PTX", statistics.ptx), ("SASS", statistics.sass)):
        for kind, count in counts.items():
            owner = KIND_OWNERS.get(kind, schedule)
            if count == 0 and owner == schedule:
                found.append(f"no {kind} in its {language}")
            elif count and owner != schedule:
                found.append(f"{count} {kind} in its {language}, but its schedule is {schedule}")
    if statistics.spills:
        found.append(f"registers spill: {statistics.spills} instructions on local memory")
    return found


def ptx_opcodes(ptx: str) -> Counter[str]:
    """How often each opcode, modifiers included, stands in ``ptx``."""
    # Inline assembly may put several instructions on a line, in braces.
    statements = re.split(r"[;{}\n]", re.sub(r"//.*", "", ptx))
    matches = (re.match(r"\s*(?:@!?[%\w]+\s+)?([a-z][\w.:]*)\s", s + " ") for s in statements)
    return Counter(match[1] for match in matches if match)


def sass_opcodes(sass: str) -> Counter[str]:
    """How often each opcode, modifiers included, stands in ``sass`` as Triton disassembles it."""
    return Counter(re.findall(r"^[^\t\n]*\t(?:@!?U?P\w+ )?([A-Z][\w.]*)", sass, re.MULTILINE))


def registers(cubin: bytes) -> int:
    """Registers per thread of a cubin's only kernel, by cuobjdump."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    (count,) = re.findall(r"\bREG:(\d+)", usage)
    return int(count)


def keep(kernel: CompiledKernel, directory: Path, name: str) -> None:
    """Write a kernel's compilation stages to ``directory``/``name``.ttgir, .ptx, .cubin, .sass."""
    for stage in STAGES:
        content = kernel.asm[stage]
        binary = content if isinstance(content, bytes) else content.encode()
        (directory / f"{name}.{stage}").write_bytes(binary)


def _count(opcodes: Counter[str], pattern: str) -> int:
    return sum(count for opcode, count in opcodes.items() if re.match(pattern, opcode))


def _row(variant: Variant, statistics: Statistics, seconds: float) -> list[object]:
    counts = [
        f"{statistics.ptx[kind]}/{'-' if statistics.sass[kind] is None else statistics.sass[kind]}"
        for kind in statistics.ptx
    ]
    s = statistics
    return [str(variant), s.registers, s.spills, s.smem, s.tmem, *counts, f"{seconds:.2f}"]


def _print_table(variants: list[Variant], rows: list[list[object]]) -> None:
    from tabulate import tabulate

    for schedule, config in {variant.schedule: variant.config for variant in variants}.items():
        print(f"{schedule}: {config}")
    print("Instructions are counted in PTX/in SASS.")
    memory = ["registers", "spills", "SMEM\nbytes", "TMEM\ncolumns"]
    kinds = KINDS[variants[0].arch]
    print(tabulate(rows, headers=["kernel", *memory, *kinds, "compile\nseconds"]))

"""Compile the kernels for sm_100a without a GPU, and look at what the compiler made of them."""

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

from .config import GemmConfig, check_config
from .heuristics import select_config

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

PRECISIONS = {"fp16": "float16", "bf16": "bfloat16"}
# tritonbench's names: a letter for a, one for b; t is row-major, n column-major.
LAYOUTS = ("tt", "tn", "nt", "nn")
# The machine that ``--shape`` asks the heuristic about.
B200_SMS = 148
STAGES = ("ttgir", "ptx", "cubin", "sass")

# Opcodes of an instruction kind in PTX and in SASS. A query of a CLC response has no instruction
# of its own in SASS: its 16 bytes are taken apart by arithmetic.
KINDS: dict[str, tuple[str, str | None]] = {
    "tcgen05.mma": (r"tcgen05\.mma\.", r"UTC\w*MMA"),
    "TMA load": (r"cp\.async\.bulk\.tensor\.\dd\.shared", r"UTMALDG"),
    "TMA store": (r"cp\.async\.bulk\.tensor\.\dd\.global", r"UTMASTG"),
    "mbarrier": (r"mbarrier\.", r"SYNCS\."),
    "try_cancel": (r"clusterlaunchcontrol\.try_cancel\.", r"UGETNEXTWORKID"),
    "query_cancel": (r"clusterlaunchcontrol\.query_cancel\.is_canceled\.", None),
}
CLC_KINDS = ("try_cancel", "query_cancel")


@dataclass(frozen=True)
class Variant:
    """One kernel to compile: ``layout`` of :data:`LAYOUTS`, ``precision`` of :data:`PRECISIONS`."""

    schedule: str
    config: GemmConfig
    layout: str
    precision: str
    bias: bool

    def __str__(self) -> str:
        return "_".join((self.schedule, self.layout, self.precision, *["bias"] * self.bias))


@dataclass(frozen=True)
class Statistics:
    """What a compiled kernel needs of an SM, and its instructions by kind.

    ``registers``: per thread at launch. ``spills``: instructions on local memory (SASS LDL, STL).
    ``smem``: dynamic shared memory in bytes. ``tmem``: tensor memory in columns. ``ptx`` and
    ``sass``: how many instructions of each of :data:`KINDS`; None where SASS has none such.
    """

    registers: int
    spills: int
    smem: int
    tmem: int
    ptx: dict[str, int]
    sass: dict[str, int | None]


def variants(
    schedules: Iterable[str],
    layouts: Iterable[str],
    precisions: Iterable[str],
    *,
    bias: bool,
    config: GemmConfig | None = None,
    shape: tuple[int, int, int] | None = None,
) -> list[Variant]:
    """Every combination, with ``config`` for all of them; else with the one that the heuristic
    chooses for ``shape``, (M, N, K), on a B200; else with the default config.

    Raises ValueError for an invalid config or an unknown schedule.
    """
    found = []
    for schedule in schedules:
        chosen = config or GemmConfig()
        if shape is not None:
            chosen = select_config(*shape, B200_SMS, schedule=schedule, bias=bias)
        check_config(chosen, schedule, bias=bias)
        found += [
            Variant(schedule, chosen, layout, precision, bias)
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
        )
        return kernel, time.perf_counter() - start


def examine(kernel: CompiledKernel) -> Statistics:
    """Statistics of a compiled kernel, by its PTX, its machine code and its metadata."""
    ptx, sass = ptx_opcodes(kernel.asm["ptx"]), sass_opcodes(kernel.asm["sass"])
    return Statistics(
        registers=registers(kernel.asm["cubin"]),
        spills=sum(count for op, count in sass.items() if re.match(r"(LDL|STL)\b", op)),
        smem=kernel.metadata.shared,
        tmem=kernel.metadata.tmem_size,
        ptx={kind: _count(ptx, pattern) for kind, (pattern, _) in KINDS.items()},
        sass={
            kind: None if pattern is None else _count(sass, pattern)
            for kind, (_, pattern) in KINDS.items()
        },
    )


def faults(schedule: str, statistics: Statistics) -> list[str]:
    """What is wrong with a kernel of ``schedule``, in words.

    Every kernel has to multiply, load, store and synchronise by the hardware's own instructions;
    a CLC kernel has to ask for work, and only it may. Nothing may spill.
    """
    found = []
    for kind in KINDS:
        for language, counts in (("PTX", statistics.ptx), ("SASS", statistics.sass)):
            count = counts[kind]
            if count == 0 and (schedule == "clc" or kind not in CLC_KINDS):
                found.append(f"no {kind} in its {language}")
            elif count and schedule != "clc" and kind in CLC_KINDS:
                found.append(f"{count} {kind} in its {language}, but its schedule is static")
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
        for kind in KINDS
    ]
    s = statistics
    return [str(variant), s.registers, s.spills, s.smem, s.tmem, *counts, f"{seconds:.2f}"]


def _print_table(variants: list[Variant], rows: list[list[object]]) -> None:
    from tabulate import tabulate

    for schedule, config in {variant.schedule: variant.config for variant in variants}.items():
        print(f"{schedule}: {config}")
    print("Instructions are counted in PTX/in SASS.")
    memory = ["registers", "spills", "SMEM\nbytes", "TMEM\ncolumns"]
    print(tabulate(rows, headers=["kernel", *memory, *KINDS, "compile\nseconds"]))

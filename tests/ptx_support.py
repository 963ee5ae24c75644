"""Small PTX kernels for the emulator's tests."""

from __future__ import annotations

import numpy as np

from tlx_clc_plugin.emulator import LaunchReport, run_ptx
from tlx_clc_plugin.emulator.memory import GlobalMemory
from tlx_clc_plugin.emulator.tensormap import TensorMap


def kernel(body: str, *, params: list[str] | None = None, threads: int = 32) -> str:
    """A module with one entry ``k``; registers %p, %h (16), %r (32), %d (64) and %q (128 bit)."""
    declared = ", ".join(
        f".param .align 64 .b8 p{i}[128]" if kind == "map" else f".param .{kind} p{i}"
        for i, kind in enumerate(params or [])
    )
    return f"""
.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry k({declared})
.reqntid {threads}
{{
.reg .pred %p<100>;
.reg .b16 %h<100>;
.reg .b32 %r<200>;
.reg .b64 %d<100>;
.reg .b128 %q<10>;
{body}
ret;
}}
"""


def run(
    ptx: str,
    *arguments: int | np.ndarray | TensorMap,
    arrays: tuple[np.ndarray, ...] = (),
    grid: tuple[int, int, int] = (1, 1, 1),
    shared_bytes: int = 4096,
    **options: object,
) -> LaunchReport:
    """Run a kernel; an array among the arguments is passed by address, ``arrays`` are the memory
    behind tensor maps."""
    memory = GlobalMemory()
    parameters = []
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            memory.add(argument.ctypes.data, argument.nbytes, f"array {i}")
            argument = argument.ctypes.data
        parameters.append(argument)
    for i, array in enumerate(arrays):
        memory.add(array.ctypes.data, array.nbytes, f"tensor {i}")
    return run_ptx(
        ptx, grid=grid, parameters=parameters, memory=memory, shared_bytes=shared_bytes, **options
    )


_LETTER = {2: "h", 4: "r", 8: "d"}


def run_instruction(text: str, inputs: list[np.ndarray], output: np.dtype) -> np.ndarray:
    """One instruction on 32 lanes: ``text`` has {d} for its result and {0}, {1} ... for inputs.

    ``inputs``: 32 elements each, moved as bits; bool arrays become predicates. The result is of
    ``output``, of which bool stands for a predicate.
    """
    lines, names, arguments = ["mov.u32 %r0, %tid.x;"], [], []
    for i, values in enumerate(inputs):
        if values.dtype.kind == "b":
            values = values.astype(np.uint16)
            names.append(f"%p{i + 1}")
        else:
            names.append(f"%{_LETTER[values.dtype.itemsize]}{i + 10}")
        size = values.dtype.itemsize
        register = f"%{_LETTER[size]}{i + 10}"
        lines += [
            f"ld.param.b64 %d1, [p{i}];",
            f"mad.wide.u32 %d2, %r0, {size}, %d1;",
            f"ld.global.b{8 * size} {register}, [%d2];",
        ]
        if names[-1].startswith("%p"):
            lines.append(f"setp.ne.b16 {names[-1]}, {register}, 0;")
        arguments.append(np.ascontiguousarray(values))
    output = np.dtype(output)
    size = 2 if output.kind == "b" else output.itemsize
    stored = f"%{_LETTER[size]}9"
    result = "%p9" if output.kind == "b" else stored
    lines.append(text.format(*names, d=result) + ";")
    if output.kind == "b":
        lines.append(f"selp.b16 {stored}, 1, 0, %p9;")
    lines += [
        f"ld.param.b64 %d1, [p{len(inputs)}];",
        f"mad.wide.u32 %d2, %r0, {size}, %d1;",
        f"st.global.b{8 * size} [%d2], {stored};",
    ]
    out = np.zeros(32, f"u{size}")
    run(kernel("\n".join(lines), params=["u64"] * (len(inputs) + 1)), *arguments, out)
    return out.astype(bool) if output.kind == "b" else out.view(output)

"""The TLX kernels, by schedule, and their compilation without a GPU."""

from __future__ import annotations

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from ..config import GemmConfig, check_config
from .blackwell import (
    matmul_kernel_tma_ws_blackwell_clc,
    matmul_kernel_tma_ws_blackwell_persistent,
)
from .hopper import matmul_kernel_tma_ws_hopper_dynamic, matmul_kernel_tma_ws_hopper_persistent

KERNELS = {
    ("blackwell", "persistent"): matmul_kernel_tma_ws_blackwell_persistent,
    ("blackwell", "clc"): matmul_kernel_tma_ws_blackwell_clc,
    ("hopper", "persistent"): matmul_kernel_tma_ws_hopper_persistent,
    ("hopper", "dynamic"): matmul_kernel_tma_ws_hopper_dynamic,
}
TARGETS = {"blackwell": GPUTarget("cuda", 100, 32), "hopper": GPUTarget("cuda", 90, 32)}
# Four warps run the default task; the rings are written out, nothing is left to pipeline.
OPTIONS = {"num_warps": 4, "num_stages": 1}


def compile_kernel(
    schedule: str,
    config: GemmConfig,
    *,
    dtype: torch.dtype = torch.float16,
    a_row_major: bool = True,
    b_row_major: bool = True,
    bias: bool = False,
    arch: str = "blackwell",
) -> CompiledKernel:
    """Compile a schedule's kernel for ``arch``, sm_100a or sm_90a; no GPU is needed.

    ``.asm`` of the result holds ttgir, ptx, cubin and sass, ``.metadata`` the shared memory in
    bytes (``shared``) and tensor memory in columns (``tmem_size``). Raises as
    :func:`~tlx_clc_plugin.config.check_config`.
    """
    check_config(config, schedule, bias=bias, arch=arch)
    kernel, c = KERNELS[arch, schedule], config
    element = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    a_box, b_box = [c.block_size_m, c.block_size_k], [c.block_size_k, c.block_size_n]
    boxes = {
        "a_desc": (element, a_box if a_row_major else a_box[::-1]),
        "b_desc": (element, b_box if b_row_major else b_box[::-1]),
        "c_desc": (element, [c.store_rows(arch), c.subtile_n]),
    }
    if c.split_k > 1:
        boxes["workspace_desc"] = "fp32", [c.store_rows(arch), c.subtile_n // 2]
    pointers = {"bias_ptr": f"*{element}"} if bias else {}
    if schedule == "dynamic":
        pointers["counter_ptr"] = "*i32"
    constants = {**c.meta(kernel), "A_ROW_MAJOR": a_row_major, "B_ROW_MAJOR": b_row_major}
    constants |= dict.fromkeys({"bias_ptr", "workspace_desc", "counter_ptr"} - {*boxes, *pointers})
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in boxes:
            scalar, (rows, columns) = boxes[name]
            signature[name] = f"tensordesc<{scalar}[{rows},{columns}]>"
        else:
            signature[name] = pointers.get(name, "i32")
    source = ASTSource(
        kernel,
        signature,
        constexprs={
            (kernel.arg_names.index(name),): value
            for name, value in constants.items()
            if name in kernel.arg_names
        },
    )
    return triton.compile(source, target=TARGETS[arch], options=OPTIONS)

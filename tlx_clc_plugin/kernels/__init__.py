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

KERNELS = {
    "persistent": matmul_kernel_tma_ws_blackwell_persistent,
    "clc": matmul_kernel_tma_ws_blackwell_clc,
}
TARGET = GPUTarget("cuda", 100, 32)
# Four warps run the epilogue task; the rings are written out, nothing is left to pipeline.
OPTIONS = {"num_warps": 4, "num_stages": 1}


def compile_kernel(
    schedule: str,
    config: GemmConfig,
    *,
    dtype: torch.dtype = torch.float16,
    a_row_major: bool = True,
    b_row_major: bool = True,
    bias: bool = False,
) -> CompiledKernel:
    """Compile a schedule's kernel for sm_100a; no GPU is needed.

    ``.asm`` of the result holds ttgir, ptx, cubin and sass, ``.metadata`` the shared memory in
    bytes (``shared``) and tensor memory in columns (``tmem_size``). Raises as
    :func:`~tlx_clc_plugin.config.check_config`.
    """
    check_config(config, schedule, bias=bias)
    kernel, c = KERNELS[schedule], config
    element = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    a_box, b_box = [c.block_size_m, c.block_size_k], [c.block_size_k, c.block_size_n]
    boxes = {
        "a_desc": a_box if a_row_major else a_box[::-1],
        "b_desc": b_box if b_row_major else b_box[::-1],
        "c_desc": [c.block_size_m, c.subtile_n],
    }
    constants = {**c.meta(), "A_ROW_MAJOR": a_row_major, "B_ROW_MAJOR": b_row_major}
    if not bias:
        constants["bias_ptr"] = None
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in boxes:
            rows, columns = boxes[name]
            signature[name] = f"tensordesc<{element}[{rows},{columns}]>"
        else:
            signature[name] = f"*{element}" if name == "bias_ptr" else "i32"
    source = ASTSource(
        kernel,
        signature,
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    return triton.compile(source, target=TARGET, options=OPTIONS)

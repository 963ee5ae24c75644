"""Stock Triton's tile matmul, no TLX: the comparison that every Triton user knows.

One tile a CTA, pointers instead of tensor descriptors, tiles in the grouped order of Triton's
matrix multiplication tutorial.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# One config that fits every shape: there is nothing to tune by on an emulated device.
CONFIG = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
OPTIONS = {"num_warps": 4, "num_stages": 3}


@triton.jit
def triton_tutorial_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_in_group = GROUP_SIZE_M * tl.cdiv(N, BLOCK_SIZE_N)
    first_pid_m = pid // num_pid_in_group * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    offs_m = (first_pid_m + pid % num_pid_in_group % group_size_m) * BLOCK_SIZE_M
    offs_m += tl.arange(0, BLOCK_SIZE_M)
    offs_n = pid % num_pid_in_group // group_size_m * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_k = tl.arange(0, BLOCK_SIZE_K)

    # Rows and columns beyond the matrix wrap around: loads need a mask along K only.
    a_ptrs = a_ptr + (offs_m % M)[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + (offs_n % N)[None, :] * stride_bn
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_SIZE_K):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    inside = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


def triton_tutorial_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b``; a: (M, K), b: (K, N), of one 16-bit floating type, any strides.

    Raises ValueError for matrices that the kernel's 32-bit offsets cannot span.
    """
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    for name, x in (("a", a), ("b", b), ("c", c)):
        rows, columns = x.shape
        if (rows - 1) * x.stride(0) + (columns - 1) * x.stride(1) >= 2**31:
            raise ValueError(f"{name} of shape {tuple(x.shape)} spans more than 2**31 elements")
    tiles = triton.cdiv(M, CONFIG["BLOCK_SIZE_M"]) * triton.cdiv(N, CONFIG["BLOCK_SIZE_N"])
    triton_tutorial_kernel[(tiles,)](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), **CONFIG, **OPTIONS
    )
    return c

"""The problems to run: shapes, and matrices as tritonbench's gemm operator makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

# Of a and b: t is row-major, n is column-major.
LAYOUTS = ("tn", "tt", "nt", "nn")
PRECISIONS = {"fp16": "float16", "bf16": "bfloat16"}


class Shape(NamedTuple):
    """a: (M, K), b: (K, N). Its text is the harness's x_val of gemm."""

    M: int
    N: int
    K: int

    def __str__(self) -> str:
        return str(tuple(self))


def parse_shapes(text: str) -> list[Shape]:
    """Shapes from ``MxNxK,...``; underscores may stand for the crosses.

    Raises ValueError for anything else, and for extents below 1.
    """
    shapes = []
    for item in text.split(","):
        parts = item.strip().lower().replace("_", "x").split("x")
        if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ValueError(f"{item.strip()!r} is not MxNxK with positive integers")
        shapes.append(Shape(*map(int, parts)))
    return shapes


def make(
    shape: Shape, *, precision: str, layout: str, bias: bool, device: str, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """a: (M, K), b: (K, N), bias: (N,) or None; all of the type of ``precision``.

    a and b are (randn + 1) / K, so that products are about 1 / K; bias is randn.
    """
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def randn(*extents: int) -> torch.Tensor:
        dtype = getattr(torch, PRECISIONS[precision])
        return torch.randn(extents, generator=generator, device=device, dtype=dtype)

    M, N, K = shape
    a, b = (randn(M, K) + 1) / K, (randn(K, N) + 1) / K
    a, b = (
        x.t().contiguous().t() if order == "n" else x
        for x, order in zip((a, b), layout, strict=True)
    )
    return a, b, randn(N) if bias else None

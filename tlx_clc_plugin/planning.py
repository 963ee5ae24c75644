"""How a product is carried out: architecture, config, grid, work items and copies, and why."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .config import GemmConfig
from .operands import Operand


@dataclass(frozen=True)
class GemmPlan:
    """What :func:`~tlx_clc_plugin.matmul` does for operands like these; holds no tensor.

    ``arch``: "blackwell" or "hopper". ``grid``: CTAs launched, (0, 1, 1) where there is nothing
    to multiply. ``full_tiles``: output tiles multiplied whole; the others are cut along K into
    ``split_k`` work items. ``copies``: the operands ("a", "b", "bias", "out") copied inside the
    call since TMA can't address them. ``reasons``: why this config and each copy, in words.
    """

    schedule: str
    arch: str
    config: GemmConfig
    M: int
    N: int
    K: int
    dtype: torch.dtype
    num_sms: int
    grid: tuple[int, int, int]
    full_tiles: int
    split_k: int
    a: Operand
    b: Operand
    out: Operand
    copies: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def tiles(self) -> int:
        """Output tiles of the problem."""
        return count_tiles(self.M, self.N, self.config)

    @property
    def split_tiles(self) -> int:
        """Tiles that are cut along K."""
        return self.tiles - self.full_tiles

    def __str__(self) -> str:
        layout = {True: "row-major", False: "column-major"}
        split = f", {self.split_tiles} of them in {self.split_k} parts" * bool(self.split_tiles)
        lines = [
            f"{self.schedule} {self.M}x{self.N}x{self.K} {str(self.dtype).removeprefix('torch.')}"
            f" on {self.num_sms} {self.arch.title()} SMs: {self.tiles} tiles{split}, "
            f"grid {self.grid}",
            f"a {layout[self.a.row_major]}, b {layout[self.b.row_major]}, "
            f"copies: {', '.join(self.copies) or 'none'}",
            str(self.config),
        ]
        return "\n".join(lines + [f"- {reason}" for reason in self.reasons])


def count_tiles(M: int, N: int, config: GemmConfig) -> int:
    """Output tiles of an M x N matrix."""
    return -(-M // config.block_size_m) * -(-N // config.block_size_n)


def divide_work(
    tiles: int, k_tiles: int, num_sms: int, schedule: str, split_k: int
) -> tuple[int, int, int]:
    """(CTAs, full tiles, split_k): the last, not full round of tiles is split, if any is."""
    if schedule == "clc":
        return tiles, tiles, 1
    split_k = min(split_k, k_tiles)
    full_tiles = tiles - tiles % num_sms if split_k > 1 else tiles
    if full_tiles == tiles:
        split_k = 1
    return min(num_sms, full_tiles + (tiles - full_tiles) * split_k), full_tiles, split_k

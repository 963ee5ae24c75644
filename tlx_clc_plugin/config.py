"""What a GEMM kernel is built from, and the one predicate that says whether it can be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

SCHEDULES = ("persistent", "clc")

# A CTA's shared memory on sm_100: 227 KiB (CUDA C++ Programming Guide, compute capabilities).
MAX_SMEM_BYTES = 227 * 1024
# Tensor memory of an SM: 512 columns of 128 lanes x 32 bit (PTX ISA, tcgen05).
MAX_TMEM_COLUMNS = 512
# The kernels take 16-bit operands; C leaves shared memory in the same type.
ELEMENT_BYTES = 2
# More tile rows than any L2 holds; larger ones are mistakes.
MAX_GROUP_SIZE_M = 1024


@dataclass(frozen=True)
class GemmConfig:
    """Compile-time parameters of both Blackwell kernels, in elements, buffers or parts.

    ``num_clc_stages`` matters to the "clc" schedule alone. A config is plain data; whether a
    kernel can be built from it is :func:`violations`' to say.
    """

    block_size_m: int = 128
    block_size_n: int = 256
    block_size_k: int = 64
    group_size_m: int = 8
    num_smem_buffers: int = 4
    num_tmem_buffers: int = 2
    num_clc_stages: int = 1
    epilogue_subtile: int = 4

    def meta(self) -> dict[str, int]:
        """The config as the kernels' keyword arguments (``BLOCK_SIZE_M=...``)."""
        return {name.upper(): value for name, value in dataclasses.asdict(self).items()}

    @property
    def subtile_n(self) -> int:
        """Columns of C that the epilogue handles at a time."""
        return self.block_size_n // self.epilogue_subtile

    @property
    def num_store_buffers(self) -> int:
        """Buffers between the epilogue's registers and its TMA stores."""
        return min(self.epilogue_subtile, 2)

    def tmem_columns(self) -> int:
        """Columns of tensor memory that the kernel allocates: a power of two, at least 32."""
        return max(32, _next_power_of_2(self.num_tmem_buffers * self.block_size_n))

    def smem_bytes(self, schedule: str, *, bias: bool) -> int:
        """Dynamic shared memory of the compiled kernel in bytes, as its metadata reports it.

        The order and alignments are those of fbtriton's allocator, read from compiled kernels:
        big buffers first, then what the tasks capture, then barriers by falling size.
        """
        num_bytes = (
            self.num_smem_buffers * (self.block_size_m + self.block_size_n) * self.block_size_k
            + self.num_store_buffers * self.block_size_m * self.subtile_n
        ) * ELEMENT_BYTES
        # A bias of this many columns changes registers between warps, through shared memory;
        # the tensor memory address, alive before that, shares the place.
        scratch = self.subtile_n * ELEMENT_BYTES if bias and self.subtile_n >= 128 else 0
        num_bytes = _align(num_bytes + scratch, 128)
        rings = [8 * self.num_smem_buffers] * 2 + [8 * self.num_tmem_buffers] * 2
        if schedule == "clc":
            num_bytes += 160  # captured values
            rings += [16 * self.num_clc_stages] + [8 * self.num_clc_stages] * 2
        else:
            num_bytes += 128
        smallest = min(rings)
        num_bytes += sum(_align(size, 16) for size in rings) - _align(smallest, 16) + smallest
        num_bytes += 4  # which task each extra warp runs, one byte a warp
        return num_bytes if scratch else _align(num_bytes, 128) + 4


def violations(config: GemmConfig, schedule: str, *, bias: bool) -> tuple[str, ...]:
    """Every rule that ``config`` breaks, in words; an empty tuple for a config that is valid.

    The compiler answers some of these with an abort of the process, so nothing is compiled
    before this has been asked. Raises ValueError for an unknown ``schedule``.
    """
    check_schedule(schedule)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if type(value) is not int or value < 1:
            return (f"{field.name} must be a positive int, got {value!r}",)
    c = config
    broken = []

    def rule(holds: bool, words: str) -> None:
        if not holds:
            broken.append(words)

    rule(
        c.block_size_m == 128,
        f"block_size_m must be 128, the rows of a one-CTA tcgen05.mma, got {c.block_size_m}",
    )
    rule(
        c.block_size_n in (32, 64, 128, 256),
        "block_size_n must be 32, 64, 128 or 256 (a tcgen05.mma has at most 256 columns), "
        f"got {c.block_size_n}",
    )
    rule(
        c.block_size_k in (16, 32, 64, 128, 256),
        "block_size_k must be 16, 32, 64, 128 or 256 (a tcgen05.mma has K = 16), "
        f"got {c.block_size_k}",
    )
    rule(
        c.group_size_m <= MAX_GROUP_SIZE_M,
        f"group_size_m must be at most {MAX_GROUP_SIZE_M}, got {c.group_size_m}",
    )
    rule(
        c.epilogue_subtile in (1, 2, 4, 8),
        f"epilogue_subtile must be 1, 2, 4 or 8, got {c.epilogue_subtile}",
    )
    rule(
        8 <= c.subtile_n <= 128,
        "block_size_n / epilogue_subtile must be 8 (a TMA row of 16 bytes) to 128 (an fp32 "
        f"register a column), got {c.block_size_n} / {c.epilogue_subtile}",
    )
    columns = c.num_tmem_buffers * c.block_size_n
    rule(
        columns <= MAX_TMEM_COLUMNS,
        f"tensor memory has {MAX_TMEM_COLUMNS} columns, num_tmem_buffers * block_size_n = "
        f"{c.num_tmem_buffers} * {c.block_size_n} = {columns}",
    )
    smem = c.smem_bytes(schedule, bias=bias)
    rule(
        smem <= MAX_SMEM_BYTES,
        f"shared memory has {MAX_SMEM_BYTES} bytes, {c.num_smem_buffers} smem buffers and the "
        f"epilogue's need {smem}",
    )
    return tuple(broken)


def check_schedule(schedule: str) -> None:
    """Raise ValueError unless ``schedule`` is one of :data:`SCHEDULES`."""
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")


def check_config(config: GemmConfig, schedule: str, *, bias: bool) -> None:
    """Raise TypeError for what is no GemmConfig, ValueError naming every rule it breaks."""
    if not isinstance(config, GemmConfig):
        raise TypeError(f"config must be a GemmConfig, got {type(config).__name__}")
    if broken := violations(config, schedule, bias=bias):
        raise ValueError(f"invalid config {config}: " + "; ".join(broken))


def _align(num_bytes: int, alignment: int) -> int:
    return -(-num_bytes // alignment) * alignment


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()

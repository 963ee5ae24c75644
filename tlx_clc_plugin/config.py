"""What a GEMM kernel is built from, and the one predicate that says whether it can be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triton import JITFunction

# Which tile schedulers there are for which architecture.
ARCH_SCHEDULES = {
    "blackwell": ("persistent", "clc"),
    "hopper": ("persistent", "dynamic"),
}
SCHEDULES = ("persistent", "clc", "dynamic")
# By major compute capability. sm_120 has neither wgmma nor tcgen05.
ARCHES = {9: "hopper", 10: "blackwell"}

# A CTA's shared memory on sm_90 and sm_100: 227 KiB (CUDA C++ Programming Guide, compute
# capabilities).
MAX_SMEM_BYTES = 227 * 1024
# Tensor memory of an SM: 512 columns of 128 lanes x 32 bit (PTX ISA, tcgen05).
MAX_TMEM_COLUMNS = 512
# The kernels take 16-bit operands; C leaves shared memory in the same type.
ELEMENT_BYTES = 2
# More tile rows than any L2 holds; larger ones are mistakes.
MAX_GROUP_SIZE_M = 1024
# Hopper: groups of four warps that share a tile, and stages of the dynamic scheduler's ring.
HOPPER_GROUPS = 2
HOPPER_SCHEDULER_STAGES = 2


@dataclass(frozen=True)
class GemmConfig:
    """Compile-time parameters of the kernels, in elements, buffers or parts.

    ``num_tmem_buffers`` and ``num_clc_stages`` (of the "clc" schedule) matter on Blackwell alone.
    ``split_k``: parts along K of each tile of the last, not full round of tiles; Hopper, no
    compile-time parameter. A config is plain data; whether a kernel can be built from it is
    :func:`violations`' to say.
    """

    block_size_m: int = 128
    block_size_n: int = 256
    block_size_k: int = 64
    group_size_m: int = 8
    num_smem_buffers: int = 4
    num_tmem_buffers: int = 2
    num_clc_stages: int = 1
    epilogue_subtile: int = 4
    split_k: int = 1

    @property
    def subtile_n(self) -> int:
        """Columns of C that the epilogue handles at a time."""
        return self.block_size_n // self.epilogue_subtile

    @property
    def num_store_buffers(self) -> int:
        """Buffers between the registers of an epilogue (on Hopper: of each group's) and C."""
        return min(self.epilogue_subtile, 2)

    def store_rows(self, arch: str) -> int:
        """Rows of C that one TMA store of the epilogue writes."""
        return self.block_size_m // HOPPER_GROUPS if arch == "hopper" else self.block_size_m

    def meta(self, kernel: JITFunction) -> dict[str, int]:
        """What ``kernel`` takes of the config, as keyword arguments (``BLOCK_SIZE_M=...``)."""
        values = {name.upper(): value for name, value in dataclasses.asdict(self).items()}
        return {name: value for name, value in values.items() if name in kernel.arg_names}

    def tmem_columns(self) -> int:
        """Columns of tensor memory that a Blackwell kernel allocates: a power of two, from 32."""
        return max(32, 1 << (self.num_tmem_buffers * self.block_size_n - 1).bit_length())

    def smem_bytes(self, schedule: str, *, bias: bool, arch: str = "blackwell") -> int:
        """Dynamic shared memory of the compiled kernel in bytes, as its metadata reports it.

        The order and alignments are those of fbtriton's allocator, read from compiled kernels:
        operands and epilogue, bias scratch, what the tasks capture, barriers by falling size, a
        byte for each extra warp, then 4 bytes that are not alive as long as the rest.
        """
        blocks = self.num_smem_buffers * (self.block_size_m + self.block_size_n) * self.block_size_k
        stores = self.block_size_m * self.num_store_buffers
        num_bytes = (blocks + stores * self.subtile_n) * ELEMENT_BYTES
        # A bias of this many columns changes registers between warps, through shared memory.
        scratch = self.subtile_n * ELEMENT_BYTES if bias and self.subtile_n >= 128 else 0
        if arch == "blackwell":
            num_bytes = _align(num_bytes + scratch, 128)
            rings = [8 * self.num_smem_buffers] * 2 + [8 * self.num_tmem_buffers] * 2
            if schedule == "clc":
                rings += [16 * self.num_clc_stages] + [8 * self.num_clc_stages] * 2
            num_bytes += 160 if schedule == "clc" else 128  # captured values
            tail = not scratch  # the tensor memory address shares the scratch
            extra_warps = 4
        else:
            num_bytes = _align(num_bytes + scratch * HOPPER_GROUPS, 128)
            rings = [8 * self.num_smem_buffers] * 2
            split = self.split_k > 1
            if schedule == "dynamic":
                rings += [8 * HOPPER_SCHEDULER_STAGES] * 2 + [4 * HOPPER_SCHEDULER_STAGES]
                num_bytes += 160 + 32 * split
            else:
                num_bytes += 112 + 16 * bias + 32 * split
            tail = schedule == "dynamic"  # the counter's value, on its way between warps
            extra_warps = 8
        smallest = min(rings)
        num_bytes += sum(_align(size, 16) for size in rings) - _align(smallest, 16) + smallest
        num_bytes += extra_warps
        return _align(num_bytes, 128) + 4 if tail else num_bytes


def violations(
    config: GemmConfig, schedule: str, *, bias: bool, arch: str = "blackwell"
) -> tuple[str, ...]:
    """Every rule that ``config`` breaks on ``arch``, in words; an empty tuple if it is valid.

    The compiler answers some of these with an abort of the process, so nothing is compiled
    before this has been asked. Raises ValueError for a ``schedule`` that ``arch`` has not.
    """
    check_schedule(schedule, arch)
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
        c.block_size_n in (32, 64, 128, 256),
        "block_size_n must be 32, 64, 128 or 256 (the tensor core takes at most 256 columns), "
        f"got {c.block_size_n}",
    )
    rule(
        c.block_size_k in (16, 32, 64, 128, 256),
        "block_size_k must be 16, 32, 64, 128 or 256 (the tensor core takes K = 16), "
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
    if arch == "blackwell":
        _blackwell_rules(c, rule)
    else:
        _hopper_rules(c, rule)
    smem = c.smem_bytes(schedule, bias=bias, arch=arch)
    rule(
        smem <= MAX_SMEM_BYTES,
        f"shared memory has {MAX_SMEM_BYTES} bytes, {c.num_smem_buffers} smem buffers and the "
        f"epilogue's need {smem}",
    )
    return tuple(broken)


def _blackwell_rules(c: GemmConfig, rule) -> None:
    rule(
        c.block_size_m == 128,
        f"block_size_m must be 128, the rows of a one-CTA tcgen05.mma, got {c.block_size_m}",
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
    rule(c.split_k == 1, f"split_k must be 1 on Blackwell, got {c.split_k}")


def _hopper_rules(c: GemmConfig, rule) -> None:
    rule(
        c.block_size_m in (128, 256),
        f"block_size_m must be 128 or 256, 64 or 128 rows a warp group, got {c.block_size_m}",
    )
    rule(
        c.block_size_m * c.block_size_n <= 128 * 256,
        "block_size_m * block_size_n must be at most 128 * 256 (128 fp32 registers a thread), "
        f"got {c.block_size_m} * {c.block_size_n}",
    )
    rule(
        c.subtile_n >= 16,
        "block_size_n / epilogue_subtile must be at least 16, "
        f"got {c.block_size_n} / {c.epilogue_subtile}",
    )


def check_schedule(schedule: str, arch: str | None = None) -> None:
    """Raise ValueError unless ``schedule`` is one of :data:`SCHEDULES`, and one of ``arch``'s."""
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    if arch is not None and schedule not in ARCH_SCHEDULES[arch]:
        raise ValueError(
            f"schedule must be one of {', '.join(ARCH_SCHEDULES[arch])} on {arch.title()}, "
            f"got {schedule!r}"
        )


def cannot_run(schedule: str, capability: tuple[int, int], device: str) -> str:
    """Why ``device``, of compute capability (major, minor), can't run ``schedule``; or ""."""
    major, minor = capability
    if schedule in ARCH_SCHEDULES.get(ARCHES.get(major), ()):
        return ""
    fit = (f"sm_{m}0" for m, arch in ARCHES.items() if schedule in ARCH_SCHEDULES[arch])
    return f"needs {' or '.join(fit)}, and {device} is sm_{major}{minor}"


def check_config(config: GemmConfig, schedule: str, *, bias: bool, arch: str = "blackwell") -> None:
    """Raise TypeError for what is no GemmConfig, ValueError naming every rule it breaks."""
    if not isinstance(config, GemmConfig):
        raise TypeError(f"config must be a GemmConfig, got {type(config).__name__}")
    if broken := violations(config, schedule, bias=bias, arch=arch):
        raise ValueError(f"invalid config {config}: " + "; ".join(broken))


def _align(num_bytes: int, alignment: int) -> int:
    return -(-num_bytes // alignment) * alignment

"""Instructions to steps, once for a kernel.

A run of arithmetic becomes one generated function (:mod:`.alu`); any other instruction becomes a
step of its own, made by the decoder in charge of its opcode.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import numpy as np

from . import (
    alu,
    atomic_ops,
    clc_ops,
    control_ops,
    memory_ops,
    sync_ops,
    tcgen05_ops,
    tensormap_ops,
    tma_ops,
    wgmma_ops,
)
from .codegen import Code, storage
from .errors import UnsupportedPtx
from .lanes import ALL_LANES, WARP_LANES
from .memory import DYNAMIC_SMEM_OFFSET
from .modifiers import Modifiers
from .operands import Body, Operands, Outcome
from .ptx import Instruction, Kernel, Label, Negated, Parameter, Register, registers_of
from .sinking import sink_early_moves
from .warp import Warp

Step = Callable[[Warp], Outcome]

# Generic addresses of parameters: a convention of this emulator, beyond any host address.
PARAMETER_BASE = 1 << 63
# The bytes of a predicate that holds in all lanes or in none.
_TRUE, _FALSE = bytes([1] * WARP_LANES), bytes(WARP_LANES)

_DECODERS = {
    **control_ops.DECODERS,
    **memory_ops.DECODERS,
    **atomic_ops.DECODERS,
    **sync_ops.DECODERS,
    **tcgen05_ops.DECODERS,
    **tma_ops.DECODERS,
    **tensormap_ops.DECODERS,
    **clc_ops.DECODERS,
    **wgmma_ops.DECODERS,
}


def parameter_address(parameter: Parameter) -> int:
    """Generic address of a kernel parameter."""
    return PARAMETER_BASE + parameter.offset


class Program:
    """A decoded kernel: ``steps[i]`` executes ``counts[i]`` instructions from ``first[i]`` on.

    Raises UnsupportedPtx, with its place, for an instruction that is not modelled.
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.steps: list[Step] = []
        self.counts: list[int] = []
        self.first: list[Instruction] = []
        self._symbols = {p.name: parameter_address(p) for p in kernel.parameters}
        self._symbols |= dict.fromkeys(kernel.shared, DYNAMIC_SMEM_OFFSET)
        targets = {
            target
            for instruction in kernel.instructions
            for operand in instruction.operands
            if isinstance(operand, Label)
            for target in operand.targets
        }
        instructions = sink_early_moves(kernel.instructions, targets)
        self._occurrences = _occurrences(instructions)
        self._registers = {register: i for i, register in enumerate(self._occurrences)}
        self._poison = [_poison(register) for register in self._registers]
        self._decode(list(_runs(instructions, targets)))

    @property
    def register_names(self) -> list[str]:
        """By number."""
        return [register.name for register in self._registers]

    def fresh_registers(self) -> list[np.ndarray]:
        """The registers of a warp that has not begun, poisoned: all bits are ones."""
        return self._poison.copy()

    def _decode(self, runs: list[tuple[int, list[Instruction]]]) -> None:
        step_at = {start: number for number, (start, _) in enumerate(runs)}
        module = dict(alu.HELPERS)
        text: list[str] = []
        for number, (_, run) in enumerate(runs):
            self.first.append(run[0])
            self.counts.append(len(run))
            if alu.is_fusible(run[0]):
                text += self._function(number, run, module)
            else:
                with _place(run[0]):
                    module[f"step{number}"] = self._single(run[0], step_at)
        exec(compile("\n".join(text), f"<{self.kernel.name}>", "exec"), module)
        self.steps = [module[f"step{number}"] for number in range(len(runs))]

    def _function(self, number: int, run: list[Instruction], module: dict) -> list[str]:
        sizes = {p.name: p.nbytes for p in self.kernel.parameters}
        code = Code(self._registers, module, self._symbols, sizes, self._occurrences)
        for instruction in run:
            with _place(instruction):
                alu.emit(code, instruction)
        lines = ["R = warp.registers", "E = warp.environment", *code.lines]
        return [f"def step{number}(warp):", *(f"  {line}" for line in lines)]

    def _single(self, instruction: Instruction, step_at: dict[int, int]) -> Step:
        operands = tuple(
            Label(x.name, tuple(step_at[target] for target in x.targets))
            if isinstance(x, Label)
            else x
            for x in instruction.operands
        )
        decode, modifiers = _decoder(instruction.opcode)
        operands = Operands(replace(instruction, operands=operands), self._registers, self._symbols)
        body = decode(modifiers, operands)
        modifiers.end()
        return self._guarded(body, instruction.guard)

    def _guarded(self, body: Body, guard: Register | Negated | None) -> Step:
        if guard is None:
            return lambda warp: body(warp, ALL_LANES)
        negated = isinstance(guard, Negated)
        number = self._registers[guard.register if negated else guard]
        everywhere, nowhere = (_FALSE, _TRUE) if negated else (_TRUE, _FALSE)

        def step(warp: Warp) -> Outcome:
            guards = warp.registers[number]
            pattern = guards.tobytes()
            if pattern == everywhere:
                return body(warp, ALL_LANES)
            if pattern == nowhere:
                return None
            return body(warp, (~guards if negated else guards).nonzero()[0])

        return step


def _decoder(opcode: str) -> tuple[Callable[[Modifiers, Operands], Body], Modifiers]:
    """The decoder with the longest name that begins the opcode, and what follows that name."""
    parts = opcode.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in _DECODERS:
            return _DECODERS[name], Modifiers(parts[length:])
    raise UnsupportedPtx(f"unknown instruction {opcode}")


def _runs(
    instructions: list[Instruction], targets: Collection[int]
) -> Iterator[tuple[int, list[Instruction]]]:
    """Runs of arithmetic that nothing branches into, and single other instructions."""
    start = 0
    for i, instruction in enumerate(instructions):
        fused = start < i and alu.is_fusible(instructions[i - 1]) and alu.is_fusible(instruction)
        if start < i and (not fused or i in targets):
            yield start, instructions[start:i]
            start = i
    if instructions:
        yield start, instructions[start:]


def _occurrences(instructions: list[Instruction]) -> Counter[Register]:
    return Counter(
        register
        for instruction in instructions
        for operand in (instruction.guard, *instruction.operands)
        for register in registers_of(operand)
    )


def _poison(register: Register) -> np.ndarray:
    if register.type == "pred":
        return np.ones(WARP_LANES, bool)
    if register.type == "b128":
        return np.full((WARP_LANES, 16), 0xFF, np.uint8)
    dtype = np.dtype(storage(register))
    return np.full(WARP_LANES, np.iinfo(dtype).max, dtype)


@contextlib.contextmanager
def _place(instruction: Instruction) -> Iterator[None]:
    """Say in an UnsupportedPtx which instruction it is about."""
    try:
        yield
    except UnsupportedPtx as e:
        raise UnsupportedPtx(f"{e}\n  at {instruction}") from None

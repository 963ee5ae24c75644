"""Moves that the compiler hoists above the wait for the loads they read.

LLVM does not know that a tcgen05.ld delivers its registers only at tcgen05.wait::ld, and moves
the packing of register pairs (mov.b64 {a, b}) before the wait. In machine code such moves are no
instructions at all: they only name register pairs. Here they are put back behind the wait.
"""

from __future__ import annotations

from collections.abc import Collection

from .ptx import Instruction, registers_of


def sink_early_moves(
    instructions: Collection[Instruction], targets: Collection[int]
) -> list[Instruction]:
    """The instructions with such moves behind the wait, within straight runs of code.

    ``targets``: numbers of the instructions that branches go to. An early use of another kind
    stays, and reads poison.
    """
    result = list(instructions)
    for start, load in enumerate(result):
        if load.opcode.startswith("tcgen05.ld."):
            end = _matching_wait(result, start, targets)
            if end is not None:
                result[start + 1 : end + 1] = _sunk(load, result[start + 1 : end], result[end])
    return result


def _matching_wait(
    instructions: list[Instruction], start: int, targets: Collection[int]
) -> int | None:
    for i in range(start + 1, len(instructions)):
        opcode = instructions[i].opcode
        if i in targets or opcode.startswith(("bra", "brx", "ret", "exit")):
            return None
        if opcode.startswith("tcgen05.wait::ld"):
            return i
    return None


def _sunk(load: Instruction, between: list[Instruction], wait: Instruction) -> list[Instruction]:
    pending = set(registers_of(load.operands[0]))
    kept, moved, moved_reads = [], [], set()
    for i, instruction in enumerate(between):
        used = {register for operand in instruction.operands for register in registers_of(operand)}
        if instruction.opcode.startswith("tcgen05.ld."):
            pending |= set(registers_of(instruction.operands[0]))
        elif instruction.opcode.startswith("mov.") and instruction.guard is None:
            if used & pending:
                moved.append(instruction)
                pending |= set(registers_of(instruction.operands[0]))
                moved_reads |= used
                continue
        elif used & pending:
            return [*kept, *between[i:], wait, *moved]
        if used & moved_reads:
            return [*kept, *between[i:], wait, *moved]
        kept.append(instruction)
    return [*kept, wait, *moved]

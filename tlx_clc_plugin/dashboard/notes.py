"""Notes that people attach to nights and cells, a line each in a text file of the repository::

# DATE  CELLS  TEXT; * in CELLS stands for anything
2026-11-03  *                          runner moved to another host
2026-11-20  gemm/4096x4096x4096/fp16/* slower since change 12: wanted
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Note:
    """What somebody noted of the cells that match the pattern ``cells``, on that day (UTC)."""

    day: date
    cells: str
    text: str

    def concerns(self, cell: str) -> bool:
        """Whether the note is about the cell of this id."""
        return fnmatchcase(cell, self.cells)


def read(path: Path) -> tuple[list[Note], list[str]]:
    """The notes in ``path``, by day, and a complaint for each line that is none.

    Raises OSError if the file can't be read.
    """
    notes, complaints = [], []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        day, *rest = line.split(maxsplit=2)
        try:
            cells, text = rest
            notes.append(Note(date.fromisoformat(day), cells, text.strip()))
        except ValueError:
            complaints.append(f"{path.name}, line {number}: not DATE CELLS TEXT: {line.strip()!r}")
    return sorted(notes, key=lambda note: note.day), complaints

"""``tlx-clc results``: the results files of several runs as one table, and as HUD records.

``read`` reads a file of tritonbench, ``table`` merges files and shows them, ``hud`` makes the
records of PyTorch's dashboard.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from .hud import environment, left_out, measurements, records, result_json
from .read import Benchmark, ResultsError, dtype_of, read
from .table import Table


def run(
    files: Sequence[tuple[Path, str | None]],
    *,
    precision: str | None = None,
    mode: str = "fwd",
    output: Literal["text", "csv", "json"] = "text",
    hud: Path | None = None,
    result: Path | None = None,
) -> int:
    """Print the merged results of ``files`` (path, and dtype if it was given) to stdout.

    ``precision`` is the dtype of files that tell none, ``mode`` the mode of CSV files. ``hud`` is
    where HUD records go, one JSON object a line, and ``result`` where tritonbench's result.json.
    Returns 1 if a file could not be used, a result in it failed, or a record could not hold
    something, with a line on stderr for each; else 0. What is good is shown in any case.
    """
    complaints: list[str] = []
    table = Table()
    for path, given in files:
        try:
            found = read(path, given, precision, mode)
            table.add(found)
        except (OSError, ResultsError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            complaints.append(f"{path}: {reason}")
            dtype = dtype_of(path, given, precision)
            if dtype:
                table.not_passed.add(Benchmark(dtype, mode))
        else:
            complaints += [f"{path}: {failed} did not pass" for failed in sorted(found.not_passed)]
    complaints += [f"{backend} at {row}: {why}" for (row, backend), why in table.failures().items()]
    if table.results:
        print({"text": table.to_text, "csv": table.to_csv, "json": table.to_json}[output]())
    if hud or result:
        complaints += _write(table, hud, result)
    for complaint in complaints:
        print("tlx-clc results:", " ".join(complaint.split()), file=sys.stderr)
    return 1 if complaints else 0


def _write(table: Table, hud: Path | None, result: Path | None) -> list[str]:
    """Write both files as far as they are wanted; returns what went wrong."""
    numbers, env = measurements(table), environment()
    complaints = [f"not in {hud or result}: {words}" for words in left_out(table)]
    lines = "".join(json.dumps(record) + "\n" for record in records(numbers, env))
    whole = json.dumps(result_json(numbers, env), indent=4)
    for path, text in ((hud, lines), (result, whole)):
        if path:
            try:
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                complaints.append(f"{path}: {error.strerror}")
    return complaints

"""What happens in the harness's processes, as lines of JSON in one file.

The harness starts children, ends with status 0 whatever happened, and leaves failed runs out of
its files. So every process of a run appends its events to one log, which outlives them all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_VARIABLE = "TLX_CLC_EVENTS"


class Log:
    """An append-only file of events; each a dict with "event", "pid" and what is given."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of_this_run(cls) -> Log:
        """The log of the run that this process belongs to. Raises RuntimeError outside a run."""
        try:
            return cls(Path(os.environ[_VARIABLE]))
        except KeyError:
            raise RuntimeError(f"{_VARIABLE} is not set: use the command tritonbench") from None

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to write here."""
        return {_VARIABLE: str(self.path)}

    def write(self, event: str, **details: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **details}, default=str) + "\n"
        # One write to a file opened for appending: lines of several processes don't mix.
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def read(self) -> list[dict[str, Any]]:
        """All events so far; a line that is still being written counts as not there."""
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

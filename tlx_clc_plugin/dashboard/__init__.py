"""``tlx-clc dashboard``: the nights as a site of static files.

``model`` says what the nights tell, ``events`` what happened around them; ``text`` writes it as
text and JSON, ``render`` as pages from ``templates/`` and ``static/``; ``notes`` reads what people
noted.
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

from ..nightly import night
from . import notes as notes_file
from .model import devices
from .render import SiteError, write


def run(
    results: Path, site: Path, *, notes: Path | None = None, now: datetime | None = None
) -> int:
    """Write the site of the night files in ``results``; ``notes`` is by default notes.txt there,
    if there is one, and ``now`` the present.

    Returns 0; 1 if a file or a note was set aside, each with a line on stderr, and the site shows
    them and the rest; 2, without touching ``site``, if there is no night at all, or a folder or
    file can't be read or written.
    """
    now = now or datetime.now(timezone.utc)
    if notes is None and (results / "notes.txt").exists():
        notes = results / "notes.txt"
    try:
        next(results.iterdir(), None)
        nights, set_aside = night.load_all(results, now)
        noted, bad_notes = notes_file.read(notes) if notes else ([], [])
        aside = [(_printable(path.name), reason) for path, reason in set_aside]
        aside += [(notes.name, complaint) for complaint in bad_notes]
        complaints = [f"{name}: {why}" for name, why in aside]
        if not nights:
            complaints.append(f"no night in {results}: {site} not written")
        else:
            write(site, devices(nights), noted, aside, now)
    except (OSError, SiteError) as error:
        complaints, nights = [str(error)], []
    for complaint in complaints:
        print("tlx-clc dashboard:", " ".join(complaint.split()), file=sys.stderr)
    if not nights:
        return 2
    print(f"{site / 'index.html'}: {len(nights)} nights")
    return 1 if complaints else 0


def _printable(name: str) -> str:
    """A file's name; bytes that are no UTF-8 as replacement characters."""
    return name.encode(errors="surrogateescape").decode(errors="replace")

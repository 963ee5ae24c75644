"""Addresses: of a change on the web, and of a cell's page within the site."""

from __future__ import annotations

import hashlib
import re

from ..guard.history import Regression
from .model import Device


def change(loss: Regression, device: Device) -> str | None:
    """Where to read the change that lost speed: all commits since the last good night, if the
    commit's address is one of a forge that compares (``.../commit/SHA``), else that commit's."""
    commits = (night.commit for run in device.runs for night in run.nights)
    url = next((commit.url for commit in commits if commit.sha == loss.first_bad_sha), None)
    root, commit, sha = (url or "").rpartition("/commit/")
    if commit and sha == loss.first_bad_sha and loss.last_good_sha != sha:
        return f"{root}/compare/{loss.last_good_sha}...{sha}"
    return url


def page(device: Device, cell: str) -> str:
    """A cell's page, relative to the front page; the same every night."""
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", cell)[:100]
    digest = hashlib.sha256(f"{device.name}\n{cell}".encode()).hexdigest()[:8]
    return f"cells/{readable}-{digest}.html"

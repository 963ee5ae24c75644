"""Where the harness is, and whether it is of any use."""

from __future__ import annotations

import importlib.util
from pathlib import Path

# Files that a wheel of the harness lacks and its runs open.
_NEEDED = ("run.py", "tritonbench/operator_loader/aten/config.yaml")
# What it imports for any operator, by the name to install; its package does not require them all.
MODULES = {
    "matplotlib": "matplotlib",
    "packaging": "packaging",
    "psutil": "psutil",
    "tabulate": "tabulate",
    "yaml": "pyyaml",
}


class UnusableHarness(RuntimeError):
    """tritonbench is importable, but cannot run."""


def locate() -> Path | None:
    """The checkout that ``import tritonbench`` would import from; None where there is none.

    Raises UnusableHarness where runs could not succeed: an installation that is no editable
    checkout, or one without the modules that the harness imports.
    """
    spec = importlib.util.find_spec("tritonbench")
    if spec is None or spec.origin is None:
        return None
    checkout = Path(spec.origin).resolve().parents[1]
    if missing := [name for name in _NEEDED if not (checkout / name).is_file()]:
        raise UnusableHarness(f"no editable checkout: {checkout} lacks {', '.join(missing)}")
    if absent := [MODULES[name] for name in MODULES if importlib.util.find_spec(name) is None]:
        raise UnusableHarness(f"it needs the modules {', '.join(absent)}")
    return checkout

"""Where the tests find tritonbench: in TRITONBENCH_HOME, or where ci/get-harness puts it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tlx_clc_plugin.harness.locate import MODULES

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CHECKOUT = Path(os.environ.get("TRITONBENCH_HOME") or _CACHE / "tlx_clc_plugin" / "tritonbench")
TESTS = Path(__file__).parent
ROOT = TESTS.parent
_ABSENT = [name for name in MODULES if importlib.util.find_spec(name) is None]

if not (CHECKOUT / "run.py").is_file():
    _reason = f"no checkout of tritonbench in {CHECKOUT}; see ci/get-harness"
else:
    _reason = f"tritonbench needs the modules {', '.join(_ABSENT)}" if _ABSENT else ""
needs_harness = pytest.mark.skipif(bool(_reason), reason=_reason)

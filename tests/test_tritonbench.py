"""The console command: which runner it takes, and that it starts quickly."""

import subprocess
import sys
from pathlib import Path

import pytest

from tlx_clc_plugin import tritonbench
from tlx_clc_plugin.bench import runner
from tlx_clc_plugin.harness import handover
from tlx_clc_plugin.harness.locate import UnusableHarness


@pytest.fixture
def taken(monkeypatch):
    """What the two runners were called with; they return 42."""
    calls = []
    for module in (runner, handover):
        monkeypatch.setattr(module, "run", lambda *args: calls.append(args) or 42)
    return calls


def test_the_harness_runs_where_it_is_installed(monkeypatch, taken):
    monkeypatch.setattr(tritonbench, "locate", lambda: Path("checkout"))
    assert tritonbench.main(["--op", "gemm"]) == 42
    assert taken == [(Path("checkout"), ["--op", "gemm"])]


def test_without_the_harness_the_embedded_runner_runs(monkeypatch, taken):
    monkeypatch.setattr(tritonbench, "locate", lambda: None)
    monkeypatch.setattr(sys, "argv", ["tritonbench", "--csv"])
    assert tritonbench.main() == 42
    assert taken == [(["--csv"], "tritonbench not installed")]


def test_an_unusable_harness_is_said(monkeypatch, taken):
    def locate():
        raise UnusableHarness("no editable checkout")

    monkeypatch.setattr(tritonbench, "locate", locate)
    assert tritonbench.main([]) == 42
    assert taken == [([], "tritonbench unusable: no editable checkout")]


def test_listing_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from tlx_clc_plugin.bench.runner import run\n"
        "assert run(['--list-backends', '--list-metrics'], '') == 0\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"

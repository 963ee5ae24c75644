"""A suite of benchmarks run by pytest, and the verdict on it: renamed, missing, wrong, failed and
skipped benchmarks reach the saved JSON, and fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tlx_clc_plugin.cli import main
from tlx_clc_plugin.guard.saved import read

SUITE = """
import pytest
from tlx_clc_plugin.guard.pytest_plugin import Planned, Wrong

CELLS = [
    Planned((64, 64, 64), "fp16", "tn", backend, "emulated", "instructions", "lower", "repro")
    for backend in ("one", "two")
]

@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(cell, record):
    if cell.backend == "two":
        pass
    record([100, 101, 105], config="c", figures={"relative_error": 0.5}, seed=7)
"""
ONE, TWO = (f"gemm/64x64x64/fp16/tn/{name}/emulated" for name in ("one", "two"))


def run_suite(folder, body: str = "pass", suite: str = SUITE, *flags: str):
    """pytest's process on ``suite`` in ``folder``, the second cell's test with ``body``."""
    folder.mkdir(exist_ok=True)
    (folder / "test_suite.py").write_text(suite.replace("pass", body))
    (folder / "conftest.py").write_text('pytest_plugins = ["tlx_clc_plugin.guard.pytest_plugin"]')
    (folder / "pytest.ini").write_text("[pytest]")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-only", ".", *flags]
    return subprocess.run(
        [*command, "--benchmark-json=run.json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    result = run_suite(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / "run.json"


def verdict(base, folder) -> tuple[int, dict[str, str]]:
    """Exit status of the comparison with ``base``, and each cell's word."""
    report = folder / "report.json"
    status = main(["compare", str(base), str(folder / "run.json"), "--json", str(report)])
    judged = json.loads(report.read_text())["judged"] if report.exists() else []
    return status, {j["cell"]: j["word"] for j in judged}


def test_what_is_recorded_is_saved_and_goes_through_pytest_benchmarks_statistics(base):
    saved = read(base)
    assert [cell.id for cell in saved.cells] == [ONE, TWO]
    first = saved.cells[0]
    assert (first.value, first.config, first.figures) == (101, "c", {"relative_error": 0.5})
    assert saved.seeds == {"inputs": 7}
    benchmarks = json.loads(base.read_text())["benchmarks"]
    assert [b["stats"]["data"] for b in benchmarks] == [[100, 101, 105]] * 2
    assert benchmarks[0]["extra_info"]["value"] == 101
    assert benchmarks[0]["group"] == "instructions"


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ("pass", 0, "ok"),
        ("raise Wrong('zeros')", 1, "wrong"),
        ("raise RuntimeError('crash')", 1, "error"),
        ("return", 1, "missing"),
        ("pytest.skip()", 1, "error"),
        ("pytest.skip('no such unit')", 0, "skipped"),
        ("return record([110])", 1, "slower"),
    ],
)
def test_each_fate_of_a_benchmark(base, tmp_path, body, status, word):
    result = run_suite(tmp_path, body)
    failing = "raise" in body or body == "return"
    assert result.returncode == int(failing), result.stdout
    assert verdict(base, tmp_path) == (status, {ONE: "ok", TWO: word})


def test_a_renamed_benchmark_fails(base, tmp_path):
    run_suite(tmp_path, suite=SUITE.replace('"two"', '"2"'))
    status, words = verdict(base, tmp_path)
    assert (status, words[TWO]) == (1, "missing")


def test_no_benchmark_at_all_fails(base, tmp_path):
    result = run_suite(tmp_path, suite=SUITE.replace("record([", "raise RuntimeError(["))
    assert result.returncode == 1
    assert verdict(base, tmp_path) == (2, {})
    skipped = run_suite(tmp_path, suite=SUITE.replace("record([", "pytest.skip('x') #"))
    assert skipped.returncode == 1


def test_pytest_benchmarks_own_comparison_works_and_refuses_another_toolchain(base, tmp_path):
    flags = (f"--benchmark-compare={base}", "--benchmark-compare-fail=median:5%")
    assert run_suite(tmp_path, "pass", SUITE, *flags).returncode == 0
    slower = run_suite(tmp_path, "return record([110])", SUITE, *flags)
    assert slower.returncode != 0 and "Performance has regressed" in slower.stdout + slower.stderr
    other = tmp_path / "other.json"
    content = json.loads(base.read_text())
    content["machine_info"]["tlx_clc_plugin"]["versions"]["fbtriton"] = "1.0"
    other.write_text(json.dumps(content))
    refused = run_suite(tmp_path, "pass", SUITE, f"--benchmark-compare={other}")
    assert refused.returncode != 0 and "not to be compared: fbtriton" in refused.stderr

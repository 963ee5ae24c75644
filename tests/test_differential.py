"""The emulator against outputs recorded on an H200, by ci/hopper-differential --record."""

from pathlib import Path

import pytest
from differential_cases import cases
from differential_run import compare, emulate, load, tutorials

DEVICE, RECORDED = load(Path(__file__).parent / "data" / "h200.npz")
RUNS = {case.name: (case.rounding, lambda case=case: emulate(case)) for case in cases()}
RUNS |= {name: ("", lambda run=run: run("cpu")) for name, run in tutorials().items()}


def test_recorded_cases():
    assert "H200" in DEVICE and set(RUNS) == set(RECORDED)


@pytest.mark.parametrize("name", RUNS)
def test_as_on_the_gpu(name):
    rounding, run = RUNS[name]
    result = compare(name, rounding, RECORDED[name], run())
    assert result.accepted, result

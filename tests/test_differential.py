"""The emulator against outputs recorded on an H200, by ci/hopper-differential --record."""

from pathlib import Path

import numpy as np
import pytest
from differential_cases import cases
from differential_run import compare, emulate, load, summary, tutorials

FILE = Path(__file__).parent / "data" / "h200.npz"
RUNS = {case.name: (case.rounding, lambda case=case: emulate(case)) for case in cases()}
RUNS |= {name: ("", lambda run=run: run("cpu")) for name, run in tutorials().items()}
needs_recording = pytest.mark.skipif(not FILE.exists(), reason=f"nothing recorded in {FILE.name}")


@pytest.fixture(scope="module")
def recorded():
    return load(FILE)


@needs_recording
def test_recorded_cases(recorded):
    device, outputs = recorded
    assert "H200" in device and set(RUNS) == set(outputs)


@needs_recording
@pytest.mark.parametrize("name", RUNS)
def test_as_on_the_gpu(name, recorded):
    rounding, run = RUNS[name]
    result = compare(name, rounding, recorded[1][name], run())
    assert result.accepted, result


def test_comparison_tells_differences():
    """One bit of a whole output, of a large one, and more than rounding of a sum."""
    small, large = np.arange(8, dtype=np.uint32), np.arange(10_000, dtype=np.uint32)
    sums = np.linspace(1, 2, 8, dtype=np.float32)
    assert compare("a", "", summary(small), small).accepted
    assert compare("a", "", summary(large), large).accepted
    assert not compare("a", "", summary(small), small ^ (small == 3)).accepted
    assert not compare("a", "", summary(large), large ^ (large == 5001)).accepted
    near, far = sums * (1 + 2.0**-20), sums * (1 + 2.0**-16)
    assert compare("a", "f16", summary(sums), near.astype(np.float32)).accepted
    assert not compare("a", "f16", summary(sums), far.astype(np.float32)).accepted
    assert not compare("a", "", summary(sums), near.astype(np.float32)).accepted

"""Regressions over many nights: caught, blamed on the right commit, and none in noise."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from nights import H200, VERSIONS, cell, history, night, noisy, sha

from tlx_clc_plugin.guard.history import Regression, regressions


def blamed(nights, index) -> list[Regression]:
    """What is said of the cell in row ``index``, after checking that no other is accused."""
    found = regressions(nights)
    name = nights[0].cells[index].id
    assert {r.cell for r in found} <= {name}
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_of_six_per_cent_in_one_cell_is_blamed_on_its_commit(seed):
    rng = np.random.default_rng(seed)
    row, first_bad = int(rng.integers(60)), int(rng.integers(8, 23))
    values = noisy(30, 5000 + seed)
    values[row, first_bad:] *= 0.94
    (found,) = blamed(history(values), row)
    assert found.first_bad_sha == sha(first_bad) and found.last_good_sha == sha(first_bad - 1)
    assert found.kind == "step" and found.recovered is None
    assert found.change == pytest.approx(-0.06, abs=0.015)
    assert found.change == pytest.approx(found.after / found.before - 1)


def test_two_hundred_histories_of_noise_give_at_most_two_alarms():
    assert sum(len(regressions(history(noisy(30, seed)))) for seed in range(200)) <= 2


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("nights_before", [0, 20])
def test_a_creep_of_one_per_cent_a_week_is_caught_within_six_weeks(seed, nights_before):
    values = noisy(nights_before + 42, 6000 + seed)
    values[seed, nights_before:] *= 1 - 0.01 * np.arange(42) / 7
    (found,) = blamed(history(values), seed)
    assert found.kind == "creep"
    assert found.change == pytest.approx(-0.06, abs=0.02)


def test_a_loss_in_all_cells_is_no_common_noise():
    values = noisy(30, 7)
    values[:, 20:] *= 0.94
    found = regressions(history(values))
    assert len(found) >= 50
    assert sum(r.first_bad_sha == sha(20) for r in found) >= 50


def test_a_mended_loss_says_when_and_comes_after_those_that_stand():
    values = noisy(40, 8)
    values[3, 10:25] *= 0.92
    values[9, 5:] *= 0.92
    nights = history(values)
    stands, mended = regressions(nights)
    assert (stands.cell, stands.recovered) == (nights[0].cells[9].id, None)
    assert mended.cell == nights[0].cells[3].id
    assert mended.recovered == nights[25].started


def test_another_driver_or_torch_or_gpu_is_never_blamed_on_a_commit():
    values = noisy(40, 9)
    values[:30, 20:] *= 0.9
    good = history(values)
    for change in (
        {"versions": replace(VERSIONS, torch="2.14.0")},
        {"gpu": replace(H200, driver="590.10")},
        {"gpu": replace(H200, power_limit_w=500.0)},
        {"gpu": replace(H200, name="NVIDIA H100")},
    ):
        assert regressions(good[:20] + [replace(n, **change) for n in good[20:]]) == []
    minor = [replace(n, gpu=replace(H200, driver="580.99")) for n in good[20:]]
    assert len(regressions(good[:20] + minor)) >= 25


def test_a_count_that_rises_is_a_loss_and_one_that_falls_is_none():
    def nights(counts):
        kind = {"mode": "compile", "metric": "instructions", "better": "lower", "low": None}
        return [night(i, [cell(value=float(v), high=None, **kind)]) for i, v in enumerate(counts)]

    (found,) = regressions(nights([1000] * 5 + [1020] * 4))
    assert (found.before, found.after) == pytest.approx((1000, 1020))
    assert found.first_bad_sha == sha(5)
    assert regressions(nights([1000] * 5 + [980] * 4)) == []
    assert regressions(nights([1000] * 5 + [1005] * 4)) == []


def test_nights_without_a_value_are_left_out_and_the_next_value_blamed():
    values = noisy(30, 10)
    values[4, 15:] *= 0.9
    nights = history(values)
    for i in (14, 15, 16):
        cells = list(nights[i].cells)
        cells[4] = replace(
            cells[4], status="error", reason="crash", value=None, low=None, high=None
        )
        nights[i] = replace(nights[i], cells=cells)
    (found,) = blamed(nights, 4)
    assert (found.last_good_sha, found.first_bad_sha) == (sha(13), sha(17))


def test_one_bad_night_is_not_yet_a_level():
    values = noisy(30, 11)
    values[0, -1] *= 0.7
    values[1, 10] *= 0.7
    assert regressions(history(values)) == []


def test_nothing_and_nights_out_of_order():
    assert regressions([]) == []
    with pytest.raises(ValueError, match="sorted"):
        regressions(history(noisy(3, 0))[::-1])

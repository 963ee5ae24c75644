"""ci/hopper-stress in the emulator: cases pass, and every planted fault fails them."""

import dataclasses
import sys

import pytest
import torch
from ci_scripts import load

import tlx_clc_plugin
from tlx_clc_plugin.emulator import EmulatedDevice

MATMUL = tlx_clc_plugin.matmul


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    script = load("hopper-stress")
    # Emulated: small problems, and no streams.
    monkeypatch.setattr(script, "MAX_PRODUCTS", 2**21)
    monkeypatch.setattr(script, "CALLS", ("default stream",))
    monkeypatch.setattr(script, "FIRST_KERNELS", 2)
    with EmulatedDevice(arch="sm_90a"):
        yield script


def test_cases_pass_and_are_counted(script, capsys):
    for number in range(3):
        case = script.draw_case(1, number)
        assert script.stress(0, 1, number, "cpu") == 0
        out = capsys.readouterr().out
        assert f"cases {number} to {number}, {case.products} results right, 0 cases failed" in out
        assert f"{case.kernel.layout} {case.products}" in out


@pytest.mark.parametrize("place", ["whole", "window", "unaligned", "strided"])
@pytest.mark.parametrize("order", ["t", "n"])
def test_operands_lie_as_named(script, place, order):
    from tlx_clc_plugin.operands import inspect_input

    like = {"dtype": torch.float16, "device": "cpu"}
    placed = script.Placed(40, 24, order, place, like)
    assert placed.matrix.shape == (40, 24)
    operand = inspect_input("a", placed.matrix)
    assert operand.copied == (place in ("unaligned", "strided"))
    assert operand.copied or operand.row_major == (order == "t")
    placed.matrix.zero_()
    assert placed.buffer.isnan().any() == (place != "whole")
    assert placed.surroundings_are_nan()
    if place != "whole":
        placed.buffer[0, 0] = 0
        assert not placed.surroundings_are_nan()


def off_by_a_percent(a, b, *, out=None, **kwargs):
    return MATMUL(a, b, out=out, **kwargs).mul_(1.01)


def never_writes_the_last_element(a, b, *, out=None, **kwargs):
    result = MATMUL(a, b, out=out, **kwargs)
    result[-1, -1] = torch.nan
    return result


def writes_a_row_too_many(a, b, *, out=None, **kwargs):
    result = MATMUL(a, b, out=out, **kwargs)
    if out is not None:
        beyond = out.storage_offset() + out.shape[0] * out.stride(0)
        out.as_strided((1, out.shape[1]), out.stride(), beyond).zero_()
    return result


def raises(a, b, **kwargs):
    raise RuntimeError("planted")


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (off_by_a_percent, "times the bound"),
        (never_writes_the_last_element, "1 of "),
        (writes_a_row_too_many, "memory around out was overwritten"),
        (raises, "RuntimeError: planted"),
    ],
)
def test_planted_faults_fail_and_can_be_repeated(script, monkeypatch, capsys, planted, told):
    kernel = dataclasses.replace(script.draw_kernel(0, 0), layout="tn", config=None)
    case = script.Case(kernel, 70, 40, 50, ("whole", "whole", "window"), False, script.CALLS[0], 1)
    monkeypatch.setattr(script, "draw_case", lambda seed, number: case)
    monkeypatch.setattr(tlx_clc_plugin, "matmul", planted)
    assert script.stress(0, 3, 7, "cpu") == 1
    captured = capsys.readouterr()
    assert told in captured.err and "--seed 3 --first 7" in captured.err
    assert "0 results right, 1 case failed" in captured.out


def test_every_kind_is_drawn():
    script = load("hopper-stress")
    cases = [script.draw_case(0, number) for number in range(2000)]
    assert {case.call for case in cases} == {"default stream", "stream", "graph", "threads"}
    assert {case.kernel.layout for case in cases} == {"tn", "tt", "nt", "nn"}
    assert {place for case in cases for place in case.places} == {*script.PLACES, None}
    configs = {case.kernel.config for case in cases}
    assert None in configs and any(c and c.split_k > 1 for c in configs)

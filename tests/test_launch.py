"""Replayed launches, on a driver that notes what it is asked to launch."""

import types

import pytest
import torch
import triton
from triton.runtime.jit import JITFunction

import tlx_clc_plugin
from tlx_clc_plugin import GemmConfig, launch
from tlx_clc_plugin.kernels import KERNELS

CONFIG = GemmConfig(num_smem_buffers=2)
META = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [128, 64]}


@pytest.fixture
def launches(monkeypatch):
    """What was launched: grid, stream, arguments; tensor maps stand as ("map", address)."""
    noted = []
    utils = types.SimpleNamespace(
        launch=lambda *args: noted.append((args[:3], args[3], args[-1])),
        fill_tma_descriptor_tiled=lambda address, *rest: ("map", address),
    )
    monkeypatch.setattr(triton.runtime.driver, "_active", types.SimpleNamespace(utils=utils))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 77, raising=False)
    return noted


def operands(bias=False):
    a, b = torch.randn(200, 64).half(), torch.randn(64, 512).half()
    return a, b, torch.empty(200, 512).half(), torch.randn(512).half() if bias else None


def replay_of(a, b, out, bias):
    plan = tlx_clc_plugin.plan(a, b, bias=bias, schedule="dynamic", config=CONFIG, num_sms=3)
    kernel = types.SimpleNamespace(
        metadata=types.SimpleNamespace(tensordesc_meta=[META] * 3),
        src=types.SimpleNamespace(fn=KERNELS["hopper", "dynamic"]),
        run=types.SimpleNamespace(
            launch_cooperative_grid=False, launch_pdl=False, arg_annotations=0, kernel_signature=0
        ),
        function=1,
        packed_metadata=(),
    )
    return plan, launch.Replay(plan, a, b, out, bias, [kernel])


@pytest.fixture
def counter(monkeypatch):
    zeros = torch.zeros(2, dtype=torch.int32)
    monkeypatch.setattr(launch, "tile_counter", lambda device: zeros)
    return zeros


def test_arguments_are_those_of_the_kernel(launches, counter):
    a, b, out, bias = operands(bias=True)
    plan, replay = replay_of(a, b, out, bias)
    assert replay(a, b, out, bias, new=True)
    ((grid, stream, arguments),) = launches
    assert grid == plan.grid == (3, 1, 1) and stream == 77
    descriptors = [[("map", x.data_ptr()), *x.shape, *x.stride()] for x in (a, b, out)]
    names = list(KERNELS["hopper", "dynamic"].arg_names)
    flat = [y for x in descriptors for y in x]
    assert list(arguments[: len(flat)]) == flat
    rest = dict(zip(names[3:], arguments[len(flat) :], strict=True))
    assert rest["bias_ptr"] == bias.data_ptr() and rest["counter_ptr"] == counter.data_ptr()
    assert (rest["M"], rest["N"], rest["K"]) == (200, 512, 64)
    assert (rest["num_full_tiles"], rest["split_k"]) == (4, 1)


def test_other_addresses_get_other_tensor_maps(launches, counter):
    a, b, out, _ = operands()
    _, replay = replay_of(a, b, out, None)
    for x in (a, torch.randn(200, 64).half(), a):
        assert replay(x, b, out, None, new=True)
        assert launches[-1][2][0] == ("map", x.data_ptr())
    assert launches[0] == launches[2]


def test_a_given_out_is_replayed_only_once_it_was_approved(launches, counter):
    a, b, out, _ = operands()
    _, replay = replay_of(a, b, out, None)
    assert not replay(a, b, out, None, new=False)
    replay.approve(a, b, out, None)
    assert replay(a, b, out, None, new=False)
    assert not replay(a, b, torch.empty_like(out), None, new=False)
    assert len(launches) == 1


@pytest.mark.parametrize("which", [0, 1, 3])
def test_unaligned_addresses_are_not_replayed(launches, counter, which):
    a, b, out, bias = operands(bias=True)
    _, replay = replay_of(a, b, out, bias)
    given = [a, b, out, bias]
    shape = given[which].shape
    given[which] = torch.randn(shape.numel() + 1).half()[1:].view(shape)
    assert not replay(*given, new=True)
    assert launches == []


def test_an_observed_jit_is_not_bypassed(launches, counter, monkeypatch):
    a, b, out, _ = operands()
    _, replay = replay_of(a, b, out, None)
    with monkeypatch.context() as patch:
        patch.setattr(JITFunction, "run", lambda *args, **kwargs: None)
        assert not replay(a, b, out, None, new=True)
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(print)
    try:
        assert not replay(a, b, out, None, new=True)
    finally:
        hooks.remove(print)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    assert not replay(a, b, out, None, new=True)
    assert launches == []


def test_what_is_kept_is_bounded(launches, counter, monkeypatch):
    monkeypatch.setattr(launch, "_MAX_KEPT", 4)
    a, b, out, _ = operands()
    _, replay = replay_of(a, b, out, None)
    others = [torch.randn(200, 64).half() for _ in range(9)]
    for x in others:
        assert replay(x, b, out, None, new=True)
        replay.approve(x, b, out, None)
    assert len(replay._kept) <= 4 and len(replay._approved) <= 4

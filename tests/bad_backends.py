"""A tritonbench plugin, ``--plugin bad_backends.register``: one good gemm backend, and bad ones."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def _product(a, b, bias):
    result = a.detach().float() @ b.detach().float()
    return (result if bias is None else result + bias.detach().float()).to(a.dtype)


def good(operator, a, b, bias) -> Callable:
    return lambda: _product(a, b, bias)


def raises_at_setup(operator, a, b, bias) -> Callable:
    raise RuntimeError("planted at set-up; second; third\nand a second line")


def raises_at_run(operator, a, b, bias) -> Callable:
    def run():
        raise ValueError("planted at run")

    return run


def returns_none(operator, a, b, bias) -> None:
    return None


def gives_none(operator, a, b, bias) -> Callable:
    return lambda: None


def zeros(operator, a, b, bias) -> Callable:
    return lambda: torch.zeros_like(_product(a, b, bias))


def scaled(operator, a, b, bias) -> Callable:
    return lambda: _product(a, b, bias) * 1.5


def nan(operator, a, b, bias) -> Callable:
    def run():
        result = _product(a, b, bias)
        result[-1, -1] = torch.nan
        return result

    return run


def wrong_dtype(operator, a, b, bias) -> Callable:
    return lambda: _product(a, b, bias).float()


def stale(operator, a, b, bias) -> Callable:
    cached = _product(a, b, bias)
    return lambda: cached


def wrong_shape(operator, a, b, bias) -> Callable:
    return lambda: _product(a, b, bias)[:, :-1]


def hangs(operator, a, b, bias) -> Callable:
    def run():
        while True:
            time.sleep(0.1)

    return run


def dies(operator, a, b, bias) -> Callable:
    def run():
        import ctypes

        ctypes.string_at(0)

    return run


BACKENDS = {
    f"bad_{f.__name__}": f
    for f in (
        raises_at_setup,
        raises_at_run,
        returns_none,
        gives_none,
        zeros,
        scaled,
        nan,
        wrong_dtype,
        stale,
        wrong_shape,
        hangs,
        dies,
    )
}


def register() -> None:
    from tritonbench.operators.gemm import Operator
    from tritonbench.utils.triton_op import register_benchmark

    for name, backend in {"good": good, **BACKENDS}.items():
        register_benchmark(
            operator_name="gemm", func_name=name, fwd_only=True, tags=["planted"], cls=Operator
        )(backend)

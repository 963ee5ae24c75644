"""Our backends and metrics, registered with the harness's gemm operator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..config import SCHEDULES, cannot_run

# Backend name -> schedule.
BACKENDS = {f"tlx_{schedule}": schedule for schedule in SCHEDULES}
# Set to 1, it makes our backends autotune their configs: the flag --autotune of the command.
AUTOTUNE_VARIABLE = "TLX_CLC_AUTOTUNE"


def register() -> None:
    """Add the backends ``tlx_persistent``, ``tlx_clc`` and ``tlx_dynamic`` and the metrics
    ``tlx_accuracy`` and ``tlx_error`` to tritonbench's gemm operator: ``--plugin
    tlx_clc_plugin.register``. On the emulated device there are the emulator's metrics too.

    The harness calls this for every operator instance; all calls but the first do nothing. On a
    machine that cannot run a backend it is registered as disabled.
    """
    from tritonbench.operators.gemm import Operator
    from tritonbench.utils.triton_op import (
        REGISTERED_BENCHMARKS,
        REGISTERED_METRICS,
        register_benchmark,
    )

    from . import metrics

    if BACKENDS.keys() <= REGISTERED_BENCHMARKS["gemm"].keys():
        return
    for name, schedule in BACKENDS.items():
        # Never baseline=True: the harness would compare all others with it.
        register_benchmark(
            operator_name="gemm",
            func_name=name,
            enabled=not disabled_reason(name),
            fwd_only=True,
            tags=["tlx", schedule],
            cls=Operator,
        )(_backend(schedule))
    # The harness's own decorator accepts functions of its own modules only.
    for name in metrics.names():
        REGISTERED_METRICS["gemm"].append(name)
        setattr(Operator, name, metrics.metric(name))
    Operator.compile_time = _compile_time(Operator.compile_time)


def disabled_reason(backend: str) -> str:
    """Why this machine cannot run one of :data:`BACKENDS`, in words; empty where it can."""
    import torch

    from ..emulator import EmulatedDevice

    schedule = BACKENDS[backend]
    if (emulated := EmulatedDevice.current()) is not None:
        return cannot_run(schedule, emulated.capability, "the emulated device (--arch)")
    if not torch.cuda.is_available():
        return "there is no GPU: the command tritonbench emulates one"
    capability = torch.cuda.get_device_capability()
    return cannot_run(schedule, capability, torch.cuda.get_device_name())


def _backend(schedule: str) -> Callable:
    def backend(operator: Any, a: Any, b: Any, bias: Any) -> Callable[[], Any]:
        from ..gemm import matmul, plan

        # a and b as they are: copies that the kernel needs belong to the time measured.
        if os.environ.get(AUTOTUNE_VARIABLE) != "1":
            return lambda: matmul(a, b, bias=bias, schedule=schedule)
        # Tunes here, and so not in a call that is timed.
        plan(a, b, bias=bias, schedule=schedule, config="autotune")
        return lambda: matmul(a, b, bias=bias, schedule=schedule, config="autotune")

    return backend


def _compile_time(original: Callable) -> Callable:
    """The operator's compile_time, whose child process also learns the plugin and the device.

    The harness hands it the operator's own arguments alone, so it would not know our backends.
    """

    def compile_time(operator: Any, input_id: int, fn_name: str, *args: Any, **kwargs: Any) -> Any:
        raw = operator._raw_extra_args
        plugin = f"{__package__.partition('.')[0]}.register"
        if fn_name not in BACKENDS:
            plugin = operator.tb_args.plugin
        added = ["--device", operator.device, *(["--plugin", plugin] if plugin else [])]
        operator._raw_extra_args = [*raw, *added]
        try:
            return original(operator, input_id, fn_name, *args, **kwargs)
        finally:
            operator._raw_extra_args = raw

    return compile_time

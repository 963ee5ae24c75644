"""Watches every backend that a harness process runs, and judges its output."""

from __future__ import annotations

import functools
import time
from typing import Any

from .device import TIMINGS
from .events import Log
from .generation import baselines
from .metrics import TRUTH


def install(log: Log, *, timed: bool) -> None:
    """Log the start and the end of each backend, for each input, in this process.

    The harness's benchmark_post_hook tells neither of the start, which a hang needs, nor of an
    exception; hence the wrapper. ``timed``: whether latencies are measured.
    """
    from tritonbench.utils.triton_op import BenchmarkOperator

    original = BenchmarkOperator._do_bench

    @functools.wraps(original)
    def watched(operator: Any, *args: Any, **kwargs: Any) -> Any:
        asked = operator.required_metrics
        if any(name.endswith("_in_task") for name in asked):
            # A profiler's child: the parent reports on the backend.
            return original(operator, *args, **kwargs)
        where = {
            "op": operator.name,
            "backend": operator._cur_backend_name,
            "input": str(operator.get_x_val(operator.example_inputs)),
            "input_id": operator._cur_input_id,
            "inputs": len(operator._input_ids),
        }
        log.write("begin", time=time.time(), **where)
        judged = operator.name == "gemm"
        # Judged with the very callable that was timed; what is printed follows what was asked.
        operator.required_metrics = [*asked, *TRUTH] if judged else asked
        try:
            metrics = original(operator, *args, **kwargs)
        except BaseException as error:
            log.write("end", **where, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            operator.required_metrics = asked
        log.write("end", **where, **_outcome(operator, metrics, asked, timed))
        return metrics

    BenchmarkOperator._do_bench = watched


def _outcome(operator: Any, metrics: Any, asked: list[str], timed: bool) -> dict[str, Any]:
    """What is to be said of a finished backend: "error", or "inaccurate" and "missing"."""
    if metrics.error_msg:
        return {"error": metrics.error_msg}
    expected = [name for name in TIMINGS if name in asked and timed]
    if operator._cur_backend_name in baselines(operator.name):
        expected = [name for name in expected if name != "speedup"]
    missing = [name for name in expected if getattr(metrics, name) is None]
    if asked and all(metrics.extra_metrics.get(name, "harness's") is None for name in asked):
        missing += asked  # all of them ours, and none applies: nothing was judged
    return {"inaccurate": _inaccuracy(operator, metrics), "missing": missing}


def _inaccuracy(operator: Any, metrics: Any) -> str:
    if metrics.extra_metrics.get("tlx_accuracy") == 0:
        return operator._tlx_judged.verdict.reason
    if metrics.accuracy is False:
        backward = operator.mode.value in ("bwd", "fwd_bwd")
        hint = ", which takes right gradients for wrong unless --layout is tt" if backward else ""
        return f"by tritonbench's own check{hint}"
    if getattr(metrics.determinism, "value", None) == "fail":
        return "its output changes from run to run"
    return ""

"""What is wrong with a request, told before anything runs.

The harness goes on after most mistakes: a warning, an empty table, exit status 0.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from . import device, generation

# Measured by child processes or by counters that only a GPU has.
_EXTRA_METRICS = {"cuda_time", "proton", "flops"}


def before_start(request: argparse.Namespace) -> Iterator[str]:
    """Faults that can be seen without the harness."""
    if "TRITONBENCH_RUN_CONFIG" in os.environ:
        yield "TRITONBENCH_RUN_CONFIG is set: run the entries of that file one by one"
    several = request.op is None or "," in request.op
    for flag in ("output", "output_json"):
        if (
            several
            and getattr(request, flag)
            and not (request.list_backends or request.list_metrics)
        ):
            yield (
                f"--{flag.replace('_', '-')} with several operators: each would overwrite the "
                "file of the one before; use --output-dir"
            )
        elif (path := getattr(request, flag)) and not Path(path).absolute().parent.is_dir():
            yield f"--{flag.replace('_', '-')} {path}: no such folder"
    for flag in ("output_dir", "export_dir"):
        if (path := getattr(request, flag)) and not Path(path).is_dir():
            yield f"--{flag.replace('_', '-')} {path}: no such folder"


def in_harness(ops: list[str], args: argparse.Namespace, extra: list[str]) -> Iterator[str]:
    """Faults that show once the operators and plugins are loaded.

    ``args``: what the harness's parser made of the command line; ``extra``: what it left to the
    operators.
    """
    yield from _names(ops, args)
    yield from _metrics(ops, args)
    if args.device == "cpu":
        yield from _needing_a_gpu(args)
    if "gemm" in ops:
        yield from _gemm(args, extra)


def _names(ops: list[str], args: argparse.Namespace) -> Iterator[str]:
    from tritonbench.utils.triton_op import REGISTERED_BENCHMARKS

    known = {name for op in ops for name in REGISTERED_BENCHMARKS.get(op, ())}
    for name in set(_split(args.only)) & set(_split(args.skip)):
        yield f"--skip {name}: tritonbench ignores it for what --only names"
    prefixes = args.only_match_mode != "exact"
    for flag in ("only", "skip", "baseline"):
        for name in _split(getattr(args, flag)):
            by_prefix = flag == "only" and prefixes and any(k.startswith(name) for k in known)
            if name not in known and not by_prefix:
                yield f"--{flag} {name}: unknown backend of {', '.join(ops)}; see --list-backends"


def _metrics(ops: list[str], args: argparse.Namespace) -> Iterator[str]:
    from tritonbench.components.ncu import ncu_analyzer, nsys_analyzer
    from tritonbench.utils.triton_op import BUILTIN_METRICS, REGISTERED_METRICS, X_ONLY_METRICS

    from .metrics import names

    known = {name for op in ops for name in REGISTERED_METRICS.get(op, ())}
    known |= BUILTIN_METRICS | X_ONLY_METRICS | _EXTRA_METRICS
    meaningful = device.MEANINGFUL_METRICS.union(names())
    for name in _split(args.metrics):
        profiled = ncu_analyzer.get_ncu_metrics([name]) or nsys_analyzer.get_nsys_metrics([name])
        if name not in known and not profiled and not name.endswith("_in_task"):
            yield f"--metrics {name}: unknown metric of {', '.join(ops)}; see --list-metrics"
        elif name == "kernel_source_hash" and generation.hashes_corrupt_the_table():
            yield (
                "--metrics kernel_source_hash: this tritonbench shifts the other columns, and the "
                "hash is always empty"
            )
        elif args.device == "cpu" and name not in meaningful:
            yield f"--metrics {name}: means nothing on the emulated device"


def _needing_a_gpu(args: argparse.Namespace) -> Iterator[str]:
    for flag in filter(lambda flag: getattr(args, flag), ("cudagraph", "input_loader", "side_a")):
        yield f"--{flag.replace('_', '-')}: needs a GPU, and the device is emulated"


def _gemm(args: argparse.Namespace, extra: list[str]) -> Iterator[str]:
    from tritonbench.operators.gemm.operator import parse_args, parse_shapes

    gemm = parse_args(extra)
    if gemm.layout not in ("tt", "tn", "nt", "nn"):
        yield f"--layout {gemm.layout}: not one of tt, tn, nt, nn"
    if gemm.shapes is not None and gemm.bias is not None:
        yield "--bias with --shapes: tritonbench drops the bias; give --m --n --k instead"
    if gemm.shapes is not None:
        try:
            shapes = parse_shapes(gemm.shapes)
        except ValueError:
            shapes = []
        given = [shape for shape in gemm.shapes.split(",") if shape.strip()]
        if not given or len(shapes) != len(given):
            yield f"--shapes {gemm.shapes}: not of the form MxNxK,MxNxK"
    if any((gemm.m, gemm.n, gemm.k)) and not all((gemm.m, gemm.n, gemm.k)):
        yield "--m, --n and --k go together: with one missing tritonbench takes its own shapes"
    if gemm.bias is not None and gemm.n and gemm.bias != gemm.n:
        yield f"--bias {gemm.bias}: the bias' length has to be N = {gemm.n}"
    if args.benchmark_name:
        yield "--benchmark-name: tritonbench takes it for the operator's name and finds no backends"


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()] if names else []

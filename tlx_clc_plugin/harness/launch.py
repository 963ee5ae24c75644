"""The inside of a harness process: check the request, register, watch, run.

``python run.py --launch tlx_clc_plugin.harness.launch ARGS...`` gets here, by a feature of the
harness. The harness starts its children with the arguments of its parent, so these come here too.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator

from ..bench.device import Emulated
from . import checks, device, watch
from .arguments import harness_parser, harness_script, own_parser
from .events import Log
from .locate import locate
from .metrics import TRUTH
from .register import AUTOTUNE_VARIABLE, BACKENDS, disabled_reason, register

_NESTED = "TLX_CLC_NESTED"


def run(argv: list[str]) -> None:
    """Carry out one command line of the harness; what happens goes to the log of the run.

    Raises SystemExit with status 2 for a request that is refused.
    """
    log = Log.of_this_run()
    try:
        _run(argv, log)
    except SystemExit:
        raise
    except BaseException as error:
        traceback.print_exc()
        log.write("failed", error=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None


def _run(argv: list[str], log: Log) -> None:
    from tritonbench.utils.parser import get_parser
    from tritonbench.utils.run_utils import tritonbench_run

    checkout = locate()
    # In a child the harness has put its own name before its parent's command line.
    argv = argv[1:] if argv[:1] == harness_script(checkout, [])[:1] else argv
    nested = _NESTED in os.environ
    os.environ[_NESTED] = "1"

    own, rest = own_parser().parse_known_args(argv)
    try:
        chosen, rest = device.choose(rest)
    except ValueError as error:
        _refuse(log, [str(error)])
    if own.autotune:
        if chosen == "cpu":
            _refuse(log, ["--autotune: needs a GPU, and the device is emulated"])
        # Children learn it too.
        os.environ[AUTOTUNE_VARIABLE] = "1"
    rest = _amended(rest, emulated=chosen == "cpu")
    emulation = [f"--{flag}={getattr(own, flag)}" for flag in ("arch", "sms", "policy", "seed")]
    sys.argv = harness_script(checkout, [*emulation, *rest])

    with device.active(chosen, own) as description:
        args, extra = get_parser(rest).parse_known_args(rest)
        ops = _operators(args)
        if not nested:
            print(f"runner: tritonbench ({checkout})  device: {description}", file=sys.stderr)
        _load(ops, args)
        if args.list_backends or args.list_metrics:
            tritonbench_run(rest)
            _list_disabled(ops, args)
            return
        if not nested:
            if faults := list(checks.in_harness(ops, args, extra)):
                _refuse(log, faults)
            log.write("request", ops=ops)
            for name, reason in _unavailable(ops, args):
                log.write("unavailable", backend=name, reason=reason)
        watch.install(log, timed=chosen != "cpu")
        tritonbench_run(rest)


def _amended(argv: list[str], *, emulated: bool) -> list[str]:
    """The harness's arguments with what makes them work as meant."""
    request, _ = harness_parser().parse_known_args(argv)
    argv = list(argv)
    # One backend's exception must not cost the others their results.
    if not {"--keep-going", "--exit-on-exception"} & set(argv):
        argv.append("--keep-going")
    if emulated and request.op == "gemm":
        # The operator's own metrics are timings, its own shapes take hours.
        if request.metrics is None:
            argv += ["--metrics", ",".join(TRUTH)]
        if not request.shaped:
            argv += ["--shapes", ",".join("x".join(map(str, s)) for s in Emulated.default_shapes)]
    if "--isolate" in argv:
        # The harness takes it out for its children, with what follows unless that has a "--".
        argv.remove("--isolate")
        argv.append("--isolate")
    return argv


def _refuse(log: Log, faults: list[str]) -> None:
    for fault in faults:
        log.write("refused", reason=fault)
    raise SystemExit(2)


def _operators(args: argparse.Namespace) -> list[str]:
    from tritonbench.operators_collection import list_operators_by_collection

    return args.op.split(",") if args.op else list_operators_by_collection(args.op_collection)


def _load(ops: list[str], args: argparse.Namespace) -> None:
    """Import the operators named and register every plugin's backends."""
    from tritonbench.operators import load_opbench_by_name
    from tritonbench.utils.plugin_utils import load_plugin

    if args.op:
        for op in ops:
            load_opbench_by_name(op)
    if "gemm" in ops:
        register()
    if args.plugin:
        load_plugin(args.plugin)


def _unavailable(ops: list[str], args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The backends that --only names and the harness will leave out, and why."""
    from tritonbench.utils.triton_op import REGISTERED_BENCHMARKS

    if args.only is None or args.force or args.only_match_mode != "exact":
        return
    backward = args.mode in ("bwd", "fwd_bwd") or args.bwd or args.fwd_bwd
    for name in dict.fromkeys(name.strip() for name in args.only.split(",")):
        entries = [
            REGISTERED_BENCHMARKS[op][name]
            for op in ops
            if name in REGISTERED_BENCHMARKS.get(op, ())
        ]
        if not any(entry.enabled for entry in entries):
            yield name, _disabled(name)
        elif backward and all(entry.fwd_only for entry in entries):
            yield name, "it is forward only (no autograd)"


def _disabled(name: str) -> str:
    return (
        disabled_reason(name) if name in BACKENDS else "tritonbench has it disabled on this machine"
    )


def _list_disabled(ops: list[str], args: argparse.Namespace) -> None:
    if args.list_backends and "gemm" in ops:
        for name in BACKENDS:
            if reason := disabled_reason(name):
                print(f"{name}: disabled, {reason}")

"""The command line: tritonbench's flags for its operator gemm, and those of the emulated device."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .backends import BACKENDS, BASELINE, Backend, autotuned
from .device import Cuda, Emulated, choose
from .inputs import LAYOUTS, PRECISIONS, Shape, parse_shapes
from .metrics import METRICS, NOT_OF_BASELINE

# --bias without a length.
_ANY_LENGTH = 0
ARCHES = ("sm_100a", "sm_90a")
POLICIES = ("eager", "lazy", "random")


@dataclass(frozen=True)
class Request:
    """What to run, where. ``backends``: the baseline, if it runs, comes first."""

    device: Emulated | Cuda
    backends: list[Backend]
    baseline: str
    metrics: list[str]
    shapes: list[Shape]
    layout: str
    precision: str
    bias: bool
    seed: int


def resolve(args: argparse.Namespace) -> Request:
    """The request that parsed arguments make, defaults filled in.

    Raises ValueError, naming what is wrong, for arguments that don't fit together or the machine.
    """
    if args.output is not None and args.output == args.output_json:
        raise ValueError(f"--output and --output-json are both {args.output}")
    device = choose(args.device, arch=args.arch, sms=args.sms, policy=args.policy, seed=args.seed)
    if args.autotune and isinstance(device, Emulated):
        raise ValueError("--autotune needs a GPU, and the device is emulated")
    metrics = args.metrics or list(device.default_metrics)
    backends = _backends(args, metrics)
    return Request(
        device,
        [autotuned(backend) for backend in backends] if args.autotune else backends,
        args.baseline,
        metrics,
        _shapes(args, device),
        args.layout,
        args.precision,
        args.bias is not None,
        args.seed,
    )


def _backends(args: argparse.Namespace, metrics: list[str]) -> list[Backend]:
    names = [name for name in args.only or BACKENDS if name not in args.skip]
    if not names:
        raise ValueError("--only and --skip leave no backend")
    if args.baseline in names or not set(metrics).isdisjoint(NOT_OF_BASELINE):
        names = [args.baseline, *(name for name in names if name != args.baseline)]
    return [BACKENDS[name] for name in names]


def _shapes(args: argparse.Namespace, device: Emulated | Cuda) -> list[Shape]:
    extents = args.m, args.n, args.k
    if any(extents) and args.shapes:
        raise ValueError("--shapes and --m, --n, --k exclude each other")
    if any(extents) and not all(extents):
        raise ValueError("--m, --n and --k belong together")
    shapes = [Shape(*extents)] if any(extents) else args.shapes or list(device.default_shapes)

    ids = args.input_id
    if len(ids) > 1 and args.num_inputs:
        raise ValueError("--num-inputs goes with a single --input-id")
    for index in ids:
        if index >= len(shapes):
            raise ValueError(f"--input-id {index}: there are {len(shapes)} inputs, from 0 on")
    if len(ids) == 1:
        ids = range(ids[0], len(shapes))[: args.num_inputs]
    shapes = [shapes[index] for index in ids]
    for shape in shapes:
        if args.bias not in (None, _ANY_LENGTH, shape.N):
            raise ValueError(f"--bias {args.bias} is not N of the input {shape}")
    return shapes


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line; what it makes of one is for :func:`resolve`."""
    parser = argparse.ArgumentParser(
        prog="tritonbench",
        allow_abbrev=False,
        description="Run the backends of the operator gemm, check them and print a table. "
        "This is the runner embedded in tlx_clc_plugin; all other operators and flags need "
        "tritonbench installed.",
    )
    add = parser.add_argument
    add("--op", choices=["gemm"], default="gemm", help="the operator")
    add("--list-backends", action="store_true", help="list the backends, and run nothing")
    add("--list-metrics", action="store_true", help="list the metrics, and run nothing")

    add = parser.add_argument_group("what to run").add_argument
    add("--only", type=_names(BACKENDS), metavar="NAMES", help="backends, separated by commas")
    add("--skip", type=_names(BACKENDS), metavar="NAMES", default=[], help="backends to leave out")
    add("--baseline", choices=BACKENDS, default=BASELINE, metavar="NAME", help=f"({BASELINE})")
    add("--autotune", action="store_true", help="our kernels' configs by trial (GPU)")
    add("--metrics", type=_names(METRICS), metavar="NAMES", help="see --list-metrics")

    add = parser.add_argument_group("on what").add_argument
    add("--shapes", type=_shape_list, metavar="MxNxK,...", help="of a: (M, K) and b: (K, N)")
    for extent in "mnk":
        add(
            f"--{extent}", type=_positive, metavar=extent.upper(), help="one shape, with the others"
        )
    add(
        "--bias",
        type=_positive,
        nargs="?",
        const=_ANY_LENGTH,
        metavar="N",
        help="add a bias; its length may be given, but has to be N",
    )
    add(
        "--layout",
        choices=LAYOUTS,
        default=LAYOUTS[0],
        help="of a and b: t row-major, n column-major (tn)",
    )
    add("--precision", "--dtype", choices=PRECISIONS, default="fp16", help="of a and b (fp16)")
    add(
        "--input-id", type=_ids, default=[0], metavar="I,...", help="run these inputs, or from I on"
    )
    add("--num-inputs", type=_positive, metavar="COUNT", help="this many inputs")

    add = parser.add_argument_group("where").add_argument
    add(
        "--device",
        "-d",
        choices=["cuda", "emulated", "cpu"],
        help="by default the GPU, or an emulated one where there is none; cpu means emulated",
    )
    add(
        "--arch",
        choices=ARCHES,
        default=ARCHES[0],
        help="of the emulated device: Blackwell or Hopper (sm_100a)",
    )
    add("--sms", type=_positive, default=4, help="SMs of the emulated device (4)")
    add("--policy", choices=POLICIES, default="eager", help="its scheduling (eager)")
    add("--seed", type=_seed, default=0, help="of the policy random, and of the inputs (0)")

    add = parser.add_argument_group("output").add_argument
    add("--csv", action="store_true", help="print CSV instead of a table")
    add("--output", type=_file, metavar="FILE", help="write CSV")
    add("--output-json", type=_file, metavar="FILE", help="write JSON")
    return parser


def _names(known: Iterable[str]) -> Callable[[str], list[str]]:
    def parse_names(text: str) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return parse_names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 to 2**63 - 1")
    return int(text)


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of input numbers")
    return [int(part) for part in parts]


def _shape_list(text: str) -> list[Shape]:
    try:
        return parse_shapes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} can't be written: no such folder, or a folder")
    return path

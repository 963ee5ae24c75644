"""The command ``tlx-clc``: its sub-commands' arguments, and who carries them out."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from . import __version__, offline
from .config import ARCH_SCHEDULES, SCHEDULES, GemmConfig
from .offline import LAYOUTS, PRECISIONS
from .results.read import DTYPES, MODES


def main(argv: list[str] | None = None) -> int:
    """Run ``tlx-clc`` with ``argv`` (by default the process's own); returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["bench"]:
        from .tritonbench import main as tritonbench

        return tritonbench(argv[1:])

    parser = argparse.ArgumentParser(
        prog="tlx-clc", description="Blackwell GEMM kernels in TLX: check, compile, benchmark."
    )
    parser.add_argument("--version", action="version", version=f"tlx_clc_plugin {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_doctor(commands)
    _add_compile(commands)
    _add_results(commands)
    _add_dashboard(commands)
    _add_compare(commands)
    commands.add_parser("bench", help="the command tritonbench, by another name: bench --help")
    args = parser.parse_args(argv)
    return args.run(args)


def _add_doctor(commands: argparse._SubParsersAction) -> None:
    doctor = commands.add_parser("doctor", help="check this installation, and say what mends it")
    doctor.add_argument("--json", action="store_true", help="print JSON instead of a table")
    doctor.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    from . import doctor

    return doctor.run(as_json=args.json)


def _add_compile(commands: argparse._SubParsersAction) -> None:
    compiler = commands.add_parser(
        "compile",
        help="compile for sm_100a or sm_90a without a GPU, and show what came of it",
        description="Compile the kernels for sm_100a or sm_90a, no GPU needed, and print a table "
        "of their resources and instructions. Fails if an instruction is missing that a kernel "
        "must have, or if registers spill.",
    )
    compiler.add_argument(
        "--schedule",
        type=_names(SCHEDULES),
        metavar="NAMES",
        help=f"of {','.join(SCHEDULES)} (default: all of the architecture)",
    )
    compiler.add_argument(
        "--arch",
        choices=ARCH_SCHEDULES,
        default="blackwell",
        help="blackwell, sm_100a (default), or hopper, sm_90a",
    )
    choice = compiler.add_mutually_exclusive_group()
    choice.add_argument(
        "--config",
        type=_config,
        metavar="FIELD=N,...",
        help="a GemmConfig, by the fields that differ from the default: block_size_n=128,...",
    )
    choice.add_argument(
        "--shape",
        type=_shape,
        metavar="MxNxK",
        help="the heuristic's config for this shape on a B200 or H200",
    )
    compiler.add_argument(
        "--layout",
        type=_names(LAYOUTS),
        default=("tn",),
        metavar="NAMES",
        help=f"of a and b, of {','.join(LAYOUTS)}; t is row-major (default: tn)",
    )
    compiler.add_argument(
        "--precision",
        type=_names(PRECISIONS),
        default=("fp16",),
        metavar="NAMES",
        help=f"of {','.join(PRECISIONS)} (default: fp16)",
    )
    compiler.add_argument("--bias", action="store_true", help="with a bias")
    compiler.add_argument(
        "--output", type=Path, metavar="DIR", help="keep ttgir, ptx, cubin and sass there"
    )
    compiler.set_defaults(run=_compile)


def _compile(args: argparse.Namespace) -> int:
    try:
        variants = offline.variants(
            args.arch,
            args.schedule or ARCH_SCHEDULES[args.arch],
            args.layout,
            args.precision,
            bias=args.bias,
            config=args.config,
            shape=args.shape,
        )
        if args.output is not None:
            args.output.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        print(f"tlx-clc compile: {error}", file=sys.stderr)
        return 2
    return offline.run(variants, output=args.output)


def _add_results(commands: argparse._SubParsersAction) -> None:
    results = commands.add_parser(
        "results",
        help="merge results files of several gemm runs into one table",
        description="Merge the JSON and CSV files that tritonbench runs of gemm wrote. A file's "
        "dtype is the one in its keys, the one given, or the one in its name (bf16_gemm_fwd.json). "
        "Fails, after showing the rest, if a file or a result in it is bad.",
    )
    results.add_argument("files", type=_results_file, nargs="+", metavar="FILE[=DTYPE]")
    results.add_argument("--precision", choices=DTYPES, help="of the files that tell no dtype")
    results.add_argument("--mode", choices=MODES, default="fwd", help="of CSV files (default: fwd)")
    form = results.add_mutually_exclusive_group()
    for name in ("csv", "json"):
        form.add_argument(
            f"--{name}",
            dest="output",
            action="store_const",
            const=name,
            default="text",
            help=f"print {name.upper()} instead of a table",
        )
    results.add_argument("--hud", type=Path, metavar="FILE", help="write PyTorch HUD v3 records")
    results.add_argument(
        "--result-json", type=Path, metavar="FILE", help="write tritonbench's nightly result.json"
    )
    results.set_defaults(run=_results)


def _results(args: argparse.Namespace) -> int:
    from . import results

    return results.run(
        args.files,
        precision=args.precision,
        mode=args.mode,
        output=args.output,
        hud=args.hud,
        result=args.result_json,
    )


def _add_dashboard(commands: argparse._SubParsersAction) -> None:
    dashboard = commands.add_parser(
        "dashboard",
        help="the nights as a site of static files",
        description="Write a site that opens from a disk: today's table, regressions, each cell's "
        "history; and the same as index.txt and regressions.json. Fails, after showing the rest, "
        "if a file is bad.",
    )
    dashboard.add_argument("results", type=Path, metavar="DIR", help="folder of night files")
    dashboard.add_argument("-o", "--output", type=Path, metavar="SITE", required=True)
    dashboard.add_argument(
        "--notes", type=Path, metavar="FILE", help="what people noted (default: DIR/notes.txt)"
    )
    dashboard.set_defaults(run=_dashboard)


def _dashboard(args: argparse.Namespace) -> int:
    from . import dashboard

    return dashboard.run(args.results, args.output, notes=args.notes)


def _add_compare(commands: argparse._SubParsersAction) -> None:
    compare = commands.add_parser(
        "compare",
        help="judge a run of the benchmarks against a baseline",
        description="Judge a run of tests/benchmarks against a baseline, both saved by pytest "
        "--benchmark-json. Fails if a benchmark got slower, is wrong, failed or is missing, or if "
        "there is none; refuses (status 2) what can't be compared: another GPU, driver major, "
        "power limit or toolchain, a noisy or host-bound baseline.",
    )
    compare.add_argument("base", type=Path, metavar="BASE", help="a file of ci/baselines, say")
    compare.add_argument("head", type=Path, metavar="HEAD")
    compare.add_argument(
        "--nights", type=Path, metavar="DIR", help="night files: compare with the last ones too"
    )
    compare.add_argument(
        "--gates",
        type=Path,
        metavar="FILE",
        help='what counts as a change, JSON: [{"cells": PATTERN, "change": 0.05, "bands": 1}, ...]',
    )
    compare.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    compare.add_argument("--markdown", type=Path, metavar="FILE", help="write it as Markdown")
    compare.set_defaults(run=_compare)


def _compare(args: argparse.Namespace) -> int:
    from .guard import compare

    return compare.run(
        args.base,
        args.head,
        nights=args.nights,
        gates=args.gates,
        json=args.json,
        markdown=args.markdown,
    )


def _results_file(text: str) -> tuple[Path, str | None]:
    name, equals, dtype = text.rpartition("=")
    if not equals or Path(text).exists():
        return Path(text), None
    if dtype not in DTYPES:
        raise argparse.ArgumentTypeError(f"{dtype!r} in {text!r} is not one of {', '.join(DTYPES)}")
    return Path(name), dtype


def _names(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return parse


def _config(text: str) -> GemmConfig:
    fields = {field.name for field in dataclasses.fields(GemmConfig)}
    values = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        if name not in fields:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(sorted(fields))}")
        try:
            values[name] = int(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{item!r} gives no integer") from None
    return GemmConfig(**values)


def _shape(text: str) -> tuple[int, int, int]:
    try:
        M, N, K = (int(extent) for extent in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not MxNxK") from None
    if min(M, N, K) < 1:
        raise argparse.ArgumentTypeError(f"extents must be positive, got {text}")
    return M, N, K

"""The command's own flags, what it has to know of the harness's, and how that is started."""

from __future__ import annotations

import argparse
from pathlib import Path

# Flags that name files or folders: children run in the harness's folder, so these get absolute.
_OUTPUTS = ("--output", "--output-json", "--output-dir")
_PATHS = (*_OUTPUTS, "--dump-ir", "--export-dir", "--gpu-telemetry-output")
# May also name a file of the harness's own collection.
_PATHS_IF_PRESENT = ("--input-loader",)
# Of the operator gemm: each decides on the shapes.
_SHAPES = (
    *("--m", "--n", "--k", "--shapes", "--input", "--input-loader"),
    *("--llama", "--non-square", "--persistent-tutorial-shapes", "--splitk"),
)


def harness_script(checkout: Path, argv: list[str]) -> list[str]:
    """``argv`` as the harness's script and arguments, by which it runs ``launch.run(argv)``."""
    # An absolute name: children run in the checkout, profilers' children where the command was.
    return [str(checkout / "run.py"), "--launch", f"{__package__}.launch", *argv]


def own_parser() -> argparse.ArgumentParser:
    """The flags that the harness doesn't know."""
    parser = argparse.ArgumentParser(prog="tritonbench", add_help=False, allow_abbrev=False)
    parser.add_argument("--arch", default="sm_100a")
    parser.add_argument("--sms", type=int, default=4)
    parser.add_argument("--policy", default="eager")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--timeout", type=float, help="seconds per backend and input")
    return parser


def harness_parser() -> argparse.ArgumentParser:
    """Those of the harness's flags that decide on what happens around it."""
    parser = argparse.ArgumentParser(prog="tritonbench", add_help=False, allow_abbrev=False)
    for flag in (*_OUTPUTS, "--export-dir", "--op", "--only", "--skip", "--metrics"):
        parser.add_argument(flag)
    for flag in ("--list-backends", "--list-metrics"):
        parser.add_argument(flag, action="store_true")
    for flag in _SHAPES:
        parser.add_argument(flag, dest="shaped", nargs="?", const=True)
    parser.add_argument("--only-match-mode", default="exact")
    return parser


def absolute_paths(argv: list[str]) -> list[str]:
    """``argv`` with every path made absolute."""
    result = list(argv)
    for index, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if equals and _is_path(flag, value):
            result[index] = f"{flag}={Path(value).absolute()}"
        elif index and not equals and _is_path(argv[index - 1], argument):
            result[index] = str(Path(argument).absolute())
    return result


def _is_path(flag: str, value: str) -> bool:
    return flag in _PATHS or (flag in _PATHS_IF_PRESENT and Path(value).exists())


def without_backend(argv: list[str], name: str) -> list[str] | None:
    """``argv`` for a run that leaves out the backend; None where that leaves nothing to run."""
    request, rest = harness_parser().parse_known_args(argv)
    if request.only is None:
        return [*argv, "--skip", ",".join(filter(None, (request.skip, name)))]
    only = [other for other in request.only.split(",") if other != name]
    if not only or request.only_match_mode != "exact":
        return None
    return [*argv, "--only", ",".join(only)]

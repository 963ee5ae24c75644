"""Is this installation able to do its work? One small check a fact, each with what mends it.

``triton`` and ``fbtriton`` install different files at the same paths, and nothing in pip objects:
the one that came last wins, file by file. Most of what is asked here guards against that.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from .harness.locate import MODULES, UnusableHarness, locate

MIN_PYTHON = (3, 10)
MIN_TORCH = (2, 6)
FBTRITON = ">=3.7.3,<3.8"
FBTRITON_RANGE = ((3, 7, 3), (3, 8))
# What the kernels' schedulers pass by keyword; the order of these has changed between versions.
CLC_KEYWORDS = {
    "clc_create_context": ("num_consumers", "num_stages"),
    "clc_producer": ("context", "k", "p_producer"),
    "clc_consumer": ("context", "k", "p_consumer"),
}
HARNESS_SOURCE = "https://github.com/meta-pytorch/tritonbench"


@dataclass(frozen=True)
class Check:
    """One finding: ``status`` is "ok", "warn" or "fail"; ``fix`` the command that mends it."""

    name: str
    status: str
    detail: str
    fix: str | None = None


def run(*, as_json: bool = False) -> int:
    """Print all checks, as a table or as JSON; the exit status is 1 if any of them fails."""
    checks = examine()
    failed = any(check.status == "fail" for check in checks)
    if as_json:
        print(json.dumps({"ok": not failed, "checks": [asdict(c) for c in checks]}, indent=2))
        return int(failed)
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{check.status:<4}  {check.name:<{width}}  {check.detail}")
        if check.fix:
            print(f"{'':<4}  {'':>{width}}  mend: {check.fix}")
    counts = {s: sum(check.status == s for check in checks) for s in ("ok", "warn", "fail")}
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return int(failed)


def examine() -> list[Check]:
    """All checks, in order. None raises: what goes wrong inside one becomes its failure."""
    checks = [
        _guarded("python", check_python),
        _guarded("torch", check_torch, _INSTALL_TORCH),
        _guarded("triton owner", check_triton_owner, _reinstall_fbtriton()),
        _guarded("fbtriton version", check_fbtriton_version, _reinstall_fbtriton()),
        _guarded("fbtriton files", check_fbtriton_files, _reinstall_fbtriton()),
    ]
    broken = [check for check in checks if check.status == "fail"]
    callers = {
        "CLC functions": check_clc_functions,
        "ptxas": check_ptxas,
        "sm_100a compiler": check_compiler,
    }
    for name, function in callers.items():
        if broken:  # files of two Tritons at once can take the process down
            check = Check(name, "fail", f"not tried: mend {broken[0].name} first", broken[0].fix)
        else:
            check = _guarded(name, function, _reinstall_fbtriton())
        checks.append(check)
    return [
        *checks,
        _guarded("GPU", check_gpu, _INSTALL_TORCH),
        _guarded("harness", check_harness),
        _guarded("tritonbench command", check_command),
    ]


def _guarded(name: str, function: Callable[[], tuple[str, ...]], fix: str | None = None) -> Check:
    try:
        return Check(name, *function())
    except Exception as error:
        return Check(name, "fail", f"{type(error).__name__}: {error}", fix)


def _pip(arguments: str) -> str:
    return f"{shlex.quote(sys.executable)} -m pip {arguments}"


_INSTALL_TORCH = _pip("install --force-reinstall torch==2.13.0")


def _reinstall_fbtriton() -> str:
    try:
        version = importlib.metadata.version("fbtriton")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    pinned = f"fbtriton=={version}" if _in_range(version) else f"'fbtriton{FBTRITON}'"
    return _pip(f"install --force-reinstall --no-deps {pinned}")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part)


def _in_range(version: str) -> bool:
    lowest, end = FBTRITON_RANGE
    return lowest <= _release(version) < end


def check_python() -> tuple[str, ...]:
    """Python 3.10 or newer."""
    version = f"{sys.version.split()[0]} ({sys.executable})"
    if sys.version_info < MIN_PYTHON:
        return "fail", version, "rm -r .venv, then ci/env with Python 3.10 or newer on PATH"
    return "ok", version


def check_torch() -> tuple[str, ...]:
    """A torch that is recent enough and can be imported."""
    if importlib.util.find_spec("torch") is None:
        return "fail", "not installed", _INSTALL_TORCH
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    if _release(torch.__version__) < MIN_TORCH:
        needed = ".".join(map(str, MIN_TORCH))
        return "fail", f"{torch.__version__}, older than {needed}", _INSTALL_TORCH
    return "ok", f"{torch.__version__} ({build} build)"


def check_triton_owner() -> tuple[str, ...]:
    """The directory that ``import triton`` takes belongs to fbtriton and to nothing else."""
    spec = importlib.util.find_spec("triton")
    if spec is None:
        return "fail", "triton can't be imported: not installed", _reinstall_fbtriton()
    if spec.origin is None:
        return "fail", "triton/ is there without its __init__.py", _reinstall_fbtriton()
    package = Path(spec.origin).parent.resolve()
    claims = set(importlib.metadata.packages_distributions().get("triton", ()))
    owners = {
        dist.name: dist.version
        for dist in importlib.metadata.distributions()
        if dist.name in claims and Path(dist.locate_file("triton")).resolve() == package
    }
    others = sorted(owners.keys() - {"fbtriton"})
    detail = " and ".join(f"{name} {version}" for name, version in sorted(owners.items()))
    if not owners:
        return "fail", f"no distribution owns {package}", _reinstall_fbtriton()
    if others:
        # In this order: the removal takes the shared files with it.
        fix = f"{_pip('uninstall --yes ' + ' '.join(others))} && {_reinstall_fbtriton()}"
        return "fail", f"{package} belongs to {detail}", fix
    return "ok", f"{detail} ({package})"


def check_fbtriton_version() -> tuple[str, ...]:
    """fbtriton's version is one that the kernels are made for, and is the imported one's."""
    import triton

    version = importlib.metadata.version("fbtriton")
    if not _in_range(version):
        return "fail", f"{version} is not {FBTRITON}", _reinstall_fbtriton()
    if triton.__version__ != f"{version}+fb":
        detail = f"fbtriton is {version}, but the imported triton is {triton.__version__}"
        return "fail", detail, _reinstall_fbtriton()
    return "ok", version


def check_fbtriton_files() -> tuple[str, ...]:
    """Every file that fbtriton installed is there, with the hash of its RECORD (about 1.3 s)."""
    files = [f for f in importlib.metadata.distribution("fbtriton").files or () if f.hash]
    if not files:
        return "fail", "its RECORD lists no files", _reinstall_fbtriton()
    bad = [str(file) for file in files if _digest(file) != file.hash.value]
    if bad:
        some = ", ".join(bad[:3]) + (", ..." if len(bad) > 3 else "")
        detail = f"{len(bad)} of {len(files)} are missing or not fbtriton's: {some}"
        return "fail", detail, _reinstall_fbtriton()
    return "ok", f"{len(files)} files as recorded"


def _digest(file: importlib.metadata.PackagePath) -> str | None:
    # In pieces: the largest file has half a gigabyte.
    digest, piece = hashlib.new(file.hash.mode), bytearray(1 << 18)
    try:
        with open(file.locate(), "rb", buffering=0) as stream:
            while count := stream.readinto(piece):
                digest.update(memoryview(piece)[:count])
    except FileNotFoundError:
        return None
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def check_clc_functions() -> tuple[str, ...]:
    """TLX has the Cluster Launch Control functions, with the keywords that the kernels use."""
    import triton.language.extra.tlx as tlx

    for name, keywords in CLC_KEYWORDS.items():
        function = getattr(tlx, name, None)
        if function is None:
            return "fail", f"tlx.{name} does not exist", _reinstall_fbtriton()
        parameters = inspect.signature(function).parameters
        if missing := [keyword for keyword in keywords if keyword not in parameters]:
            detail = f"tlx.{name}({', '.join(parameters)}) lacks {', '.join(missing)}"
            return "fail", detail, _reinstall_fbtriton()
    return "ok", ", ".join(f"{name}({', '.join(kw)})" for name, kw in CLC_KEYWORDS.items())


def check_ptxas() -> tuple[str, ...]:
    """The assembler that Triton uses for Blackwell runs."""
    from triton import knobs

    ptxas = knobs.nvidia.ptxas_blackwell
    return "ok", f"{ptxas.version} ({ptxas.path})"


def check_compiler() -> tuple[str, ...]:
    """A TLX kernel with shared memory and a barrier compiles to sm_100a machine code, here, now."""
    import triton
    import triton.language as tl
    import triton.language.extra.tlx as tlx
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    @triton.jit
    def probe(out):
        buffers = tlx.local_alloc((128,), tl.float32, 1)
        barriers = tlx.alloc_barriers(1, arrive_count=1)
        tlx.local_store(buffers[0], tl.arange(0, 128).to(tl.float32))
        tlx.barrier_arrive(barriers[0], 1)
        tlx.barrier_wait(barriers[0], 0)
        tl.store(out + tl.arange(0, 128), tlx.local_load(buffers[0]))

    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True  # not from the cache of compiled kernels
        kernel = triton.compile(
            ASTSource(probe, {"out": "*fp32"}), target=GPUTarget("cuda", 100, 32)
        )
    ptx, cubin = kernel.asm["ptx"], kernel.asm["cubin"]
    if ".target sm_100a" not in ptx or "mbarrier" not in ptx or not cubin.startswith(b"\x7fELF"):
        return "fail", "the compiled kernel is not what was written", _reinstall_fbtriton()
    return "ok", f"a tiny TLX kernel gave {len(cubin)} bytes of machine code"


def check_gpu() -> tuple[str, ...]:
    """What can be done here: compile and emulate anywhere, run on a Hopper or Blackwell GPU."""
    import torch

    rungs = "compile, emulate"
    if not torch.cuda.is_available():
        if not Path("/proc/driver/nvidia/version").exists():
            return "ok", f"none: {rungs}"
        if torch.version.cuda:
            detail = f"there is an NVIDIA driver, but torch finds no GPU: {rungs}"
            return "warn", detail, "nvidia-smi"
        fix = " && ".join(
            (
                _INSTALL_TORCH,
                _pip("uninstall --yes triton"),
                _reinstall_fbtriton(),
            )
        )
        return "warn", f"there is an NVIDIA driver, but torch is a CPU build: {rungs}", fix
    capability = torch.cuda.get_device_capability()
    if capability == (9, 0):
        rungs += ", run on Hopper"
    elif capability in ((10, 0), (10, 3)):
        rungs += ", run on Blackwell"
    count, name = torch.cuda.device_count(), torch.cuda.get_device_name()
    return "ok", f"{count} x {name} (sm_{capability[0]}{capability[1]}): {rungs}"


def check_harness() -> tuple[str, ...]:
    """tritonbench itself, which is optional: absent, installed but of no use, or usable.

    It works from a source checkout alone: a wheel of it lacks files that every run opens. That is
    a warning and no failure, since the embedded runner does without.
    """
    try:
        checkout = locate()
    except UnusableHarness as error:
        fix = " && ".join(
            (
                _pip("install " + " ".join(MODULES.values())),
                f"git clone {HARNESS_SOURCE}",
                _pip("install --no-deps --editable tritonbench/"),
            )
        )
        return "warn", f"unusable: {error}", fix
    if checkout is None:
        return "ok", "tritonbench is not installed: the embedded runner is used"
    return "ok", f"usable ({checkout})"


def check_command() -> tuple[str, ...]:
    """The console command ``tritonbench`` is this package's (``tlx-clc bench`` always is)."""
    root = Path(__file__).resolve().parents[1]
    fix = _pip(f"install --no-deps --force-reinstall --editable {shlex.quote(str(root))}")
    script = Path(sysconfig.get_path("scripts")) / "tritonbench"
    if not script.is_file():
        return "warn", f"there is no {script}", fix
    if "tlx_clc_plugin.tritonbench" not in script.read_text(errors="replace"):
        return "warn", f"{script} is another package's; `tlx-clc bench` is ours", fix
    owners = {
        entry.dist.name
        for entry in importlib.metadata.entry_points(group="console_scripts", name="tritonbench")
    }
    if len(owners) > 1:
        detail = f"{script} is ours, but {' and '.join(sorted(owners))} both claim it"
        return "warn", detail, fix
    return "ok", str(script)

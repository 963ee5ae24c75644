"""ci/env, for real, on small stand-ins for torch, triton and fbtriton; nothing is downloaded."""

import os
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "ci" / "env"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "tlx_clc_plugin"
version = "0.1.0"
dependencies = ["fbtriton>=3.7.3", "torch>=2.6"]
[project.optional-dependencies]
dev = ["tool"]
"""
# All of a build backend that an editable install needs.
BACKEND = """
import sys, zipfile
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "tlx_clc_plugin-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        info = "tlx_clc_plugin-0.1.0.dist-info/"
        wheel.writestr("_editable.pth", sys.path[0])
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tlx_clc_plugin\\n"
            "Version: 0.1.0\\nProvides-Extra: dev\\nRequires-Dist: fbtriton>=3.7.3\\n"
            "Requires-Dist: torch>=2.6\\nRequires-Dist: tool; extra == 'dev'\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


def build_wheel(folder: Path, name: str, version: str, module: str, requires: str = "") -> None:
    content = f"name, version = {name!r}, {version!r}\n"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", content)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{info}/METADATA", metadata + (requires and f"Requires-Dist: {requires}\n"))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        files = (f"{module}/__init__.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD")
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in files))


class Checkout:
    """A checkout with the real ci/env, whose pip sees nothing but a folder of small wheels."""

    def __init__(self, root: Path, wheels: Path):
        self.root, self.venv = root, root / ".venv"
        (root / "ci").mkdir(parents=True)
        shutil.copy(SCRIPT, root / "ci" / "env")
        (root / "ci" / "constraints.txt").write_text("fbtriton==3.7.4\n")
        (root / "pyproject.toml").write_text(PYPROJECT)
        (root / "backend.py").write_text(BACKEND)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "TLX_"))}
        self.environ.pop("PYTHONPATH", None)
        # The user's and the machine's pip configuration would add indexes and constraints.
        pip = {"CONFIG_FILE": "/dev/null", "NO_INDEX": "1", "FIND_LINKS": str(wheels)}
        self.environ |= {f"PIP_{name}": value for name, value in pip.items()}

    def start(self, *command: str, **environ: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self.root / "ci" / "env", *command],
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess:
        process = self.start(*command, **environ)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def imported(self, module: str) -> str:
        """Which distribution's files ``module`` is made of, and that no install was needed."""
        code = f"import {module}; print({module}.name, {module}.version)"
        done = self.run("python", "-c", code)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.strip()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    build_wheel(folder, "fbtriton", "3.7.3", "triton")
    build_wheel(folder, "fbtriton", "3.7.4", "triton")
    build_wheel(folder, "triton", "3.7.1", "triton")
    build_wheel(folder, "tool", "1.0", "tool")
    build_wheel(folder, "torch", "2.13.0", "torch")
    build_wheel(folder, "torch", "2.12.0", "torch", requires="triton==3.7.1")  # as CUDA builds do
    return folder


@pytest.fixture(scope="module")
def checkout(wheels, tmp_path_factory):
    """A checkout where two first runs have been started at once."""
    checkout = Checkout(tmp_path_factory.mktemp("blank in name") / "check out", wheels)
    processes = [checkout.start("python", "-c", "import torch, tool") for _ in range(2)]
    errors = sorted(process.communicate()[1] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], errors
    assert "making .venv" in errors[0] and "installing torch==2.13.0" in errors[0]
    assert errors[1] == "ci/env: waiting for another ci/env\n"
    return checkout


def test_first_run_installs_all_and_later_ones_nothing(checkout):
    assert checkout.imported("torch") == "torch 2.13.0"
    assert checkout.imported("triton") == "fbtriton 3.7.4"
    assert checkout.imported("tool") == "tool 1.0"
    done = checkout.run("python", "-c", "import backend, sys; print(sys.prefix)")
    assert done.stdout.strip() == str(checkout.venv)


def test_command_keeps_its_status_streams_and_folder(checkout):
    done = checkout.run("bash", "-c", 'echo "$1"; echo problem >&2; pwd; exit 7', "-", "a  b")
    assert (done.returncode, done.stderr) == (7, "problem\n")
    assert done.stdout == f"a  b\n{Path.cwd()}\n"
    assert checkout.run("no-such-command").returncode == 127
    done = checkout.run()
    assert (done.returncode, done.stderr) == (2, "usage: ci/env CMD...\n")


def test_half_finished_run_is_repaired_with_the_torch_that_was_wanted(checkout):
    (checkout.root / "ci" / "constraints.txt").write_text("fbtriton==3.7.3\n")
    wanted = "--find-links=/nowhere torch==2.12.0"
    process = checkout.start("true", TLX_CLC_TORCH=wanted)
    while "making .venv" not in process.stderr.readline():
        assert process.poll() is None
    process.kill()
    process.communicate()
    repaired = checkout.run("true")
    assert repaired.returncode == 0, repaired.stderr
    assert f"installing {wanted}" in repaired.stderr
    assert checkout.imported("torch") == "torch 2.12.0"
    # That torch brought triton, which lay over fbtriton.
    assert "removing triton" in repaired.stderr
    assert checkout.imported("triton") == "fbtriton 3.7.3"
    assert not list(checkout.venv.glob("lib/python3.*/site-packages/triton-*"))


def test_a_torch_that_python_has_itself_is_kept(wheels, tmp_path):
    checkout = Checkout(tmp_path / "checkout", wheels)
    checkout.environ["PYTHONUSERBASE"] = str(tmp_path / "user")
    scheme = {"base": tmp_path / "user", "userbase": tmp_path / "user"}
    site = Path(sysconfig.get_path("purelib", "posix_user", scheme))
    for wheel in ("torch-2.12.0", "triton-3.7.1"):
        with zipfile.ZipFile(wheels / f"{wheel}-py3-none-any.whl") as file:
            file.extractall(site)
    first = checkout.run("true")
    assert first.returncode == 0, first.stderr
    assert "keeping torch 2.12.0" in first.stderr and "installing torch" not in first.stderr
    assert checkout.imported("torch") == "torch 2.12.0"
    assert not list(checkout.venv.glob("lib/python3.*/site-packages/torch*"))
    # The other triton stays where it was, behind fbtriton.
    assert checkout.imported("triton") == "fbtriton 3.7.4"
    assert (site / "triton-3.7.1.dist-info").exists()


@pytest.fixture
def tools(tmp_path):
    """A PATH with what ci/env needs, but without Python."""
    for name in (
        "bash",
        "cat",
        "dirname",
        "env",
        "flock",
        "mkdir",
        "rm",
        "sha256sum",
        "tail",
        "true",
    ):
        (tmp_path / name).symlink_to(shutil.which(name))
    return tmp_path


NO_PYTHON = "ci/env: no Python 3.10 or newer with venv and ensurepip on PATH\n"


@pytest.mark.parametrize("changed", ["pyproject.toml", "ci/constraints.txt", "ci/env"])
def test_a_changed_file_asks_for_a_new_environment(checkout, tools, changed):
    path = checkout.root / changed
    content = path.read_text()
    try:
        path.write_text(content + "\n")
        done = checkout.run("true", PATH=str(tools))
        assert (done.returncode, done.stderr) == (1, NO_PYTHON)
    finally:
        path.write_text(content)
    done = checkout.run("true", PATH=str(tools))
    assert (done.returncode, done.stderr) == (0, "")


def test_another_torch_asks_for_a_new_environment(checkout, tools):
    installed = (checkout.venv / "torch.args").read_text().strip()
    for wanted, stderr in ((installed, ""), ("torch==2.13.0", NO_PYTHON), (installed, "")):
        done = checkout.run("true", PATH=str(tools), TLX_CLC_TORCH=wanted)
        assert (done.returncode, done.stderr) == (int(bool(stderr)), stderr)


def test_old_pythons_are_passed_over_and_a_failure_shows_its_log(wheels, tmp_path, tools):
    checkout = Checkout(tmp_path / "checkout", wheels)
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3.11").write_text(
        """#!/bin/sh
        case "$*" in
            *version_info*) echo "$0" ;;
            --version) echo "Python 3.11.99" ;;
            *) echo "no room for a virtual environment" >&2; exit 3 ;;
        esac
        """
    )
    for name in ("python3", "python3.11"):
        (tools / name).chmod(0o755)
    done = checkout.run("echo", "not to be seen", PATH=str(tools))
    assert (done.returncode, done.stdout) == (1, "")
    assert "making .venv with Python 3.11.99" in done.stderr
    assert "\nno room for a virtual environment\n" in done.stderr
    assert f"the whole log is in {checkout.venv}/install.log" in done.stderr

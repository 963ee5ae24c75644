"""The doctor against installations that really are broken, each in a process of its own."""

import ast
import base64
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from triton import knobs

from tlx_clc_plugin import doctor
from tlx_clc_plugin.harness.locate import MODULES

ROOT = Path(doctor.__file__).parents[1]
REINSTALL = f"{sys.executable} -m pip install --force-reinstall --no-deps fbtriton"


def ask(check: str, site: Path, *python: str) -> tuple[str, ...]:
    """What a check answers where nothing is installed but what lies in ``site``."""
    code = f"from tlx_clc_plugin import doctor; print(doctor.{check}())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    command = python or (sys.executable, "-S")
    done = subprocess.run(
        [*command, "-c", code], env=env, check=True, capture_output=True, text=True
    )
    return ast.literal_eval(done.stdout)


def add_distribution(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Install a package by hand: its files, and the dist-info that pip would write."""
    record = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest())
        record.append(f"{path},sha256={digest.rstrip(b'=').decode()},{len(content)}")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,\n"]))


def fbtriton(site: Path, version: str = "3.7.4", **files: str) -> None:
    """A small fbtriton; keywords replace its files, named by their module."""
    tlx = """
def clc_create_context(num_stages, num_consumers, _semantic=None): pass
def clc_producer(context, k=0, p_producer=None, _semantic=None): pass
def clc_consumer(context, k=0, p_consumer=None, _semantic=None): pass
"""
    contents = {
        "triton/__init__.py": f"__version__ = '{version}+fb'\n",
        "triton/language/__init__.py": "",
        "triton/language/extra/__init__.py": "",
        "triton/language/extra/tlx/__init__.py": files.get("tlx", tlx),
    }
    add_distribution(site, "fbtriton", version, contents)


def test_this_installation_is_sound():
    command = [sys.executable, "-m", "tlx_clc_plugin", "doctor", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["ok"], report
    checks = {check.pop("name"): check for check in report["checks"]}
    assert len(checks) == 11
    assert all(check["status"] in ("ok", "warn") for check in checks.values())
    assert all(check["fix"] for check in checks.values() if check["status"] == "warn")
    version = importlib.metadata.version("fbtriton")
    assert checks["fbtriton version"]["detail"] == version
    assert f"fbtriton {version} (" in checks["triton owner"]["detail"]
    assert "compile, emulate" in checks["GPU"]["detail"]


def test_an_assembler_that_fails_is_seen_by_compiling(tmp_path):
    # The same version as the real one: nothing but running it tells them apart.
    version = subprocess.check_output([knobs.nvidia.ptxas_blackwell.path, "--version"], text=True)
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(f"#!/bin/sh\n[ $1 = --version ] || exit 1\ncat <<END\n{version}END\n")
    ptxas.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tlx_clc_plugin", "doctor"],
        cwd=ROOT,
        env={**os.environ, "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert len(failed) == 1 and "sm_100a compiler" in failed[0] and "ptxas" in failed[0]
    assert f"mend: {REINSTALL}" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" 1 fail")


def test_triton_beside_fbtriton_is_found_and_mended_in_the_right_order(tmp_path):
    fbtriton(tmp_path)
    assert ask("check_triton_owner", tmp_path)[0] == "ok"
    assert ask("check_fbtriton_version", tmp_path) == ("ok", "3.7.4")
    assert ask("check_fbtriton_files", tmp_path) == ("ok", "4 files as recorded")

    # What pip does when triton comes after it: its files, at the same paths.
    add_distribution(tmp_path, "triton", "3.9.0", {"triton/__init__.py": "__version__ = '3.9.0'\n"})
    status, detail, fix = ask("check_triton_owner", tmp_path)
    assert status == "fail" and detail.endswith("belongs to fbtriton 3.7.4 and triton 3.9.0")
    assert fix == f"{sys.executable} -m pip uninstall --yes triton && {REINSTALL}==3.7.4"
    status, detail, fix = ask("check_fbtriton_version", tmp_path)
    assert status == "fail" and detail == "fbtriton is 3.7.4, but the imported triton is 3.9.0"
    status, detail, fix = ask("check_fbtriton_files", tmp_path)
    assert detail == "1 of 4 are missing or not fbtriton's: triton/__init__.py"
    assert (status, fix) == ("fail", f"{REINSTALL}==3.7.4")

    # `pip uninstall triton` alone takes the shared file with it.
    shutil.rmtree(tmp_path / "triton-3.9.0.dist-info")
    (tmp_path / "triton/__init__.py").unlink()
    status, detail, fix = ask("check_triton_owner", tmp_path)
    assert (status, fix) == ("fail", f"{REINSTALL}==3.7.4")
    assert detail == "triton/ is there without its __init__.py"


def test_a_triton_elsewhere_on_the_path_is_no_clash(tmp_path):
    fbtriton(tmp_path / "first")
    add_distribution(tmp_path / "second", "triton", "3.9.0", {"triton/__init__.py": ""})
    both = Path(os.pathsep.join((str(tmp_path / "first"), str(tmp_path / "second"))))
    assert ask("check_triton_owner", both)[0] == "ok"
    both = Path(os.pathsep.join((str(tmp_path / "second"), str(tmp_path / "first"))))
    status, detail, _ = ask("check_triton_owner", both)
    assert status == "fail" and detail.endswith("belongs to triton 3.9.0")


def test_absent_or_unowned_triton(tmp_path):
    tmp_path.joinpath("empty").mkdir()
    status, detail, fix = ask("check_triton_owner", tmp_path / "empty")
    assert (status, detail) == ("fail", "triton can't be imported: not installed")
    assert fix.endswith(f"'fbtriton{doctor.FBTRITON}'")
    fbtriton(tmp_path)
    shutil.rmtree(tmp_path / "fbtriton-3.7.4.dist-info")
    status, detail, _ = ask("check_triton_owner", tmp_path)
    assert status == "fail" and detail.startswith("no distribution owns")


@pytest.mark.parametrize("version", ["3.7.2", "3.8.0", "3.6", "4.0.0"])
def test_versions_out_of_range(tmp_path, version):
    fbtriton(tmp_path, version)
    status, detail, fix = ask("check_fbtriton_version", tmp_path)
    assert (status, detail) == ("fail", f"{version} is not >=3.7.3,<3.8")
    assert fix.endswith("'fbtriton>=3.7.3,<3.8'")


def test_the_ranges_are_those_of_pyproject():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'"fbtriton{doctor.FBTRITON}"' in project
    assert f'"torch>={".".join(map(str, doctor.MIN_TORCH))}"' in project
    assert f'requires-python = ">={".".join(map(str, doctor.MIN_PYTHON))}"' in project


def test_a_missing_and_an_altered_file(tmp_path):
    fbtriton(tmp_path)
    (tmp_path / "triton/language/__init__.py").unlink()
    (tmp_path / "triton/language/extra/__init__.py").write_text("x = 1\n")
    status, detail, _ = ask("check_fbtriton_files", tmp_path)
    assert status == "fail" and detail.startswith("2 of 4 are missing or not fbtriton's: ")
    assert "triton/language/__init__.py" in detail and "triton/language/extra/__init" in detail


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("def clc_producer(context, p_producer, _semantic=None): pass", "clc_producer(context, p"),
        ("del clc_consumer", "tlx.clc_consumer does not exist"),
        ("def clc_create_context(num_stages): pass", "lacks num_consumers"),
    ],
)
def test_clc_functions_that_the_kernels_could_not_call(tmp_path, changed, words):
    fbtriton(tmp_path / "sound")
    assert ask("check_clc_functions", tmp_path / "sound")[0] == "ok"
    tlx = (tmp_path / "sound/triton/language/extra/tlx/__init__.py").read_text()
    fbtriton(tmp_path / "changed", tlx=f"{tlx}\n{changed}\n")
    status, detail, fix = ask("check_clc_functions", tmp_path / "changed")
    assert status == "fail" and words in detail and fix.startswith(REINSTALL)


def test_torch_absent_or_old(tmp_path):
    assert ask("check_torch", tmp_path)[:2] == ("fail", "not installed")
    init = "__version__ = '2.5.1+cu124'\nclass version: cuda = '12.4'\n"
    add_distribution(tmp_path, "torch", "2.5.1", {"torch/__init__.py": init})
    status, detail, fix = ask("check_torch", tmp_path)
    assert (status, detail) == ("fail", "2.5.1+cu124, older than 2.6")
    assert fix == f"{sys.executable} -m pip install --force-reinstall torch==2.13.0"


def test_what_goes_wrong_inside_a_check_is_its_failure():
    def check():
        raise OSError("libcudart.so: cannot open shared object file")

    found = doctor._guarded("torch", check, "pip install torch")
    assert found.status == "fail" and found.fix == "pip install torch"
    assert found.detail == "OSError: libcudart.so: cannot open shared object file"


def test_harness_absent_unusable_and_usable(tmp_path):
    assert ask("check_harness", tmp_path)[0] == "ok"
    package = tmp_path / "tritonbench"
    (package / "operator_loader/aten").mkdir(parents=True)
    (package / "__init__.py").touch()
    status, detail, fix = ask("check_harness", tmp_path)
    assert status == "warn" and "run.py" in detail and "config.yaml" in detail
    assert "git clone" in fix and fix.endswith("pip install --no-deps --editable tritonbench/")
    (tmp_path / "run.py").touch()
    (package / "operator_loader/aten/config.yaml").touch()
    status, detail, fix = ask("check_harness", tmp_path)
    assert status == "warn" and detail.startswith("unusable: ") and "matplotlib" in detail
    assert f"{sys.executable} -m pip install matplotlib packaging psutil tabulate pyyaml" in fix
    for module in MODULES:
        (tmp_path / f"{module}.py").touch()
    assert ask("check_harness", tmp_path) == ("ok", f"usable ({tmp_path})")


def test_whose_the_console_command_is(tmp_path):
    venv.create(tmp_path / "env", with_pip=False)
    python = str(tmp_path / "env/bin/python")
    script = Path(python).with_name("tritonbench")
    assert ask("check_command", tmp_path, python)[:2] == ("warn", f"there is no {script}")
    script.write_text("from tritonbench.cli import main\n")
    status, detail, fix = ask("check_command", tmp_path, python)
    assert status == "warn" and "another package's" in detail
    assert fix.startswith(f"{python} -m pip install") and fix.endswith(f"--editable {ROOT}")
    script.write_text("from tlx_clc_plugin.tritonbench import main\n")
    assert ask("check_command", tmp_path, python) == ("ok", str(script))
    for name in ("tlx_clc_plugin", "tritonbench"):
        add_distribution(tmp_path, name, "1.0", {f"{name}_module.py": ""})
        info = tmp_path / f"{name}-1.0.dist-info"
        (info / "entry_points.txt").write_text("[console_scripts]\ntritonbench = a:main\n")
    status, detail, _ = ask("check_command", tmp_path, python)
    assert status == "warn" and detail.endswith("tlx_clc_plugin and tritonbench both claim it")

"""tlx-clc results against tritonbench itself: files of its runs on the CPU, its HUD converter."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness_checkout import CHECKOUT, needs_harness

from tlx_clc_plugin import cli

CONVERTER = CHECKOUT / ".ci/test_infra/oss_ci_benchmark_v3.py"
pytestmark = needs_harness

# Runs gemm for both dtypes and once with a backend that ends the run. What was measured comes from
# the harness's objects, not from its files.
RUNS = """
import json, os, sys
import torch
import triton
from triton.backends.compiler import GPUTarget

class Stub:
    def get_active_torch_device(self):
        return torch.device("cpu")
    def get_current_target(self):
        return GPUTarget("cpu", 0, 32)

triton.runtime.driver.set_active(Stub())
from tritonbench.operators.gemm import Operator
from tritonbench.utils.parser import get_parser
from tritonbench.utils.run_utils import _run
from tritonbench.utils.triton_op import register_benchmark

def fails(operator, a, b, bias):
    raise RuntimeError("planted; with a semicolon\\nand a second line")

def refuses(operator, a, b, bias):
    raise NotImplementedError("planted refusal")

def skips(operator, a, b, bias):
    return None

def zeros(operator, a, b, bias):
    return lambda: torch.zeros_like(a @ b)

for backend in (fails, refuses, skips, zeros):
    register_benchmark(operator_name="gemm", func_name=backend.__name__, cls=Operator)(backend)

def run(name, precision, only, *flags):
    argv = ["--op", "gemm", "--device", "cpu", "--only", only, "--precision", precision]
    argv += ["--shapes", "64x48x32,128x64x16", "--metrics", "latency,accuracy,tflops"]
    argv += ["--output-json", f"{name}.json", "--output", f"{name}.csv", "--skip-print"]
    argv += ["--warmup", "1", "--rep", "5", *flags]
    return _run(*get_parser(argv).parse_known_args(argv))

every = "aten_matmul,fails,refuses,skips,zeros"
truth = {
    dtype: [
        [x_val, backend, None if m.error_msg else m.latency.p50, m.tflops, m.accuracy, m.error_msg]
        for x_val, backends in run(f"{dtype}_gemm_fwd", dtype, only, "--keep-going").result
        for backend, m in backends.items()
    ]
    for dtype, only in (("bf16", every), ("fp16", every), ("fp32", "aten_matmul"))
}
try:
    run("crashed", "fp16", every)
except RuntimeError:
    pass
json.dump(truth, open("truth", "w"))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the harness's files, and what it measured by (dtype, shape, backend)."""
    folder = tmp_path_factory.mktemp("runs")
    env = os.environ | {"PYTHONPATH": str(CHECKOUT), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [sys.executable, "-c", RUNS], cwd=folder, env=env, check=True, capture_output=True
    )
    truth = json.loads((folder / "truth").read_text())
    return folder, {
        (dtype, str(tuple(x_val)), backend): measured
        for dtype, rows in truth.items()
        for x_val, backend, *measured in rows
    }


@pytest.fixture(autouse=True)
def in_folder(runs, monkeypatch):
    monkeypatch.chdir(runs[0])


def csv_cells(text):
    header, *rows = csv.reader(io.StringIO(text), delimiter=";")
    return {
        (dtype, shape, *column.split("-", 1)): value
        for shape, dtype, _, *values in rows
        for column, value in zip(header[3:], values, strict=True)
    }


@pytest.mark.parametrize("suffixes", [("json", "json"), ("csv", "csv"), ("csv", "json")])
def test_merged_table_is_what_was_measured(capsys, runs, suffixes):
    bf16, fp16 = suffixes
    files = [f"bf16_gemm_fwd.{bf16}", f"fp16_gemm_fwd.{fp16}", "fp32_gemm_fwd.json"]
    status = cli.main(["results", "--csv", *files])
    captured = capsys.readouterr()
    cells = csv_cells(captured.out)
    complaints = captured.err.splitlines()
    assert status == 1 and len(runs[1]) == 2 * (5 + 5 + 1) and len(complaints) == 2 * (4 + 4)
    for where, (latency, tflops, accuracy, error) in runs[1].items():
        dtype, shape, backend = where
        if error:
            assert cells[(*where, "latency")] == error
            assert cells[(*where, "tflops")] == cells[(*where, "accuracy")] == "no result"
        else:
            assert float(cells[(*where, "latency")]) == latency
            assert float(cells[(*where, "tflops")]) == tflops
        if backend == "zeros":
            assert accuracy is False and cells[(*where, "accuracy")] == "inaccurate"
        why = " ".join((error or "inaccurate").split())
        line = f"tlx-clc results: {backend} at {shape} {dtype} fwd: {why}"
        assert (line in complaints) == (backend != "aten_matmul")


def test_json_and_csv_of_a_run_agree(capsys):
    files = ["bf16_gemm_fwd.json", "fp16_gemm_fwd.json"]
    cli.main(["results", "--json", *files])
    from_json = capsys.readouterr()
    cli.main(["results", "--json", *files, *(f.replace("json", "csv") for f in files)])
    assert capsys.readouterr() == from_json


def test_a_crashed_run_is_named(capsys):
    assert json.loads(Path("crashed.json").read_text()) == {}
    status = cli.main(["results", "--csv", "fp16_gemm_fwd.json", "crashed.json=bf16"])
    captured = capsys.readouterr()
    assert status == 1 and "crashed.json: no results" in captured.err
    assert {dtype for dtype, *_ in csv_cells(captured.out)} == {"fp16"}
    assert cli.main(["results", "crashed.csv=bf16"]) == 1
    assert "crashed.csv: no results" in capsys.readouterr().err


RUNNER_TYPES = ("unknown", "linux.dgx.b200", "gcp-h100-runner")
# The harness's converter, for all runner types in one process.
CONVERT = """
import runpy, sys
converter, *runner_types = sys.argv[1:]
for name in runner_types:
    sys.argv[1:] = ["--json", f"{name}.result.json", "--output", f"{name}.theirs"]
    runpy.run_path(converter, run_name="__main__")
"""


def test_the_converter_makes_our_records(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNNER_NAME", "gpu-7")
    files = ["bf16_gemm_fwd.json", "fp16_gemm_fwd.csv", "fp32_gemm_fwd.json"]
    for name in RUNNER_TYPES:
        monkeypatch.setenv("RUNNER_TYPE", name)
        outputs = ["--hud", f"{tmp_path}/{name}.ours"]
        outputs += ["--result-json", f"{tmp_path}/{name}.result.json"]
        assert cli.main(["results", *files, *outputs]) == 1
    # The converter's imports include the harness's uploader, which imports this, for nothing.
    (tmp_path / "requests.py").touch()
    command = [sys.executable, "-c", CONVERT, str(CONVERTER), *RUNNER_TYPES]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(tmp_path)))}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    for name in RUNNER_TYPES:
        ours, theirs = (
            [json.loads(line) for line in (tmp_path / f"{name}.{whose}").open()]
            for whose in ("ours", "theirs")
        )
        assert ours == theirs

    told = {}
    for record in ours:
        _check_schema(record)
        where = record["benchmark"]["dtype"], record["metric"]["extra_info"].get("input_shape")
        where += record["model"]["backend"], record["metric"]["name"]
        assert where not in told and record["benchmark"]["mode"] == "fwd"
        (told[where],) = record["metric"]["benchmark_values"]

    expected = {}
    for (dtype, shape, backend), (latency, tflops, *_) in runs[1].items():
        if backend == "aten_matmul":
            for metric, value in (("latency", latency), ("tflops", tflops)):
                expected[dtype, shape, backend, metric] = value
                where = dtype, None, backend, f"{metric}-avg"
                expected[where] = expected.get(where, 0.0) + value / 2
        elif backend == "zeros":
            expected[dtype, shape, backend, "accuracy"] = 0.0
        expected[dtype, None, None, "pass"] = float(dtype == "fp32")
    assert told == pytest.approx(expected, rel=1e-12)


# oss_ci_benchmark_v3/schema.sql of pytorch/test-infra, the columns that a benchmark fills. A
# column absent from a record has ClickHouse's default.
TEXTS = {str: str}  # Map(String, String)
SCHEMA = {
    "runners": [
        {
            "name": str,
            "type": str,
            "gpu_info": str,
            "gpu_count": int,
            "avail_gpu_mem_in_gb": int,
            "extra_info": TEXTS,
        }
    ],
    "benchmark": {"name": str, "mode": str, "dtype": str, "extra_info": TEXTS},
    "model": {"name": str, "type": str, "backend": str, "extra_info": TEXTS},
    "dependencies": {str: {"repo": str, "branch": str, "sha": str, "extra_info": TEXTS}},
    "metric": {"name": str, "benchmark_values": [float], "extra_info": TEXTS},
}


def _check_schema(value, schema=SCHEMA):
    if isinstance(schema, list):
        for element in value:
            _check_schema(element, *schema)
    elif isinstance(schema, dict):
        for key, element in value.items():
            _check_schema(element, schema[key] if key in schema else schema[type(key)])
    else:
        # The backend of "pass" is null, in the converter's records too.
        assert type(value) is schema or value is None

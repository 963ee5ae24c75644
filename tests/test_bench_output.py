"""Tables, CSV and JSON: by hand, as our results reader takes them, and against tritonbench."""

import io
import json
import os
import subprocess
import sys

import pytest
from harness_checkout import CHECKOUT, needs_harness

from tlx_clc_plugin.bench.inputs import Shape
from tlx_clc_plugin.bench.metrics import Measurement
from tlx_clc_plugin.bench.output import Results
from tlx_clc_plugin.results.read import read

SMALL, LARGE = Shape(16, 8, 4), Shape(512, 512, 256)


def results(metrics, rows):
    """``rows``: by shape and backend the values of the metrics, or a Measurement."""
    measured = [
        (
            shape,
            {
                backend: values
                if isinstance(values, Measurement)
                else Measurement(dict(zip(metrics, values, strict=True)))
                for backend, values in by_backend.items()
            },
        )
        for shape, by_backend in rows.items()
    ]
    return Results(list(next(iter(rows.values()))), "aten_matmul", metrics, measured)


def written(results):
    csv, text = io.StringIO(newline=""), io.StringIO()
    results.write_csv(csv)
    results.write_json(text)
    return csv.getvalue(), json.loads(text.getvalue())


EXAMPLE = results(
    ["latency", "speedup", "accuracy"],
    {
        SMALL: {"aten_matmul": (0.5, 1.0, 1.0), "tlx_clc": (0.25, 2.0, 1.0)},
        LARGE: {
            "aten_matmul": (1.5, 1.0, 1.0),
            "tlx_clc": Measurement({"accuracy": 0.0}, inaccurate="error 7 times the bound"),
        },
    },
)


def test_csv_and_json_worked_by_hand():
    csv, flat = written(EXAMPLE)
    assert csv.split("\r\n") == [
        "(M, N, K);aten_matmul-latency;aten_matmul-accuracy;"
        "tlx_clc-latency;tlx_clc-speedup;tlx_clc-accuracy",
        "(16, 8, 4);0.5;1.0;0.25;2.0;1.0",
        "(512, 512, 256);1.5;1.0;n/a;n/a;0.0",
        "average;1.0;1.0;0.25;2.0;0.5",
        "",
    ]
    key = "tritonbench_gemm_fwd"
    assert flat == {
        f"{key}[x_(16, 8, 4)-aten_matmul]_latency": "0.5",
        f"{key}[x_(16, 8, 4)-aten_matmul]_accuracy": 1.0,
        f"{key}[x_(16, 8, 4)-tlx_clc]_latency": "0.25",
        f"{key}[x_(16, 8, 4)-tlx_clc]_speedup": 2.0,
        f"{key}[x_(16, 8, 4)-tlx_clc]_accuracy": 1.0,
        f"{key}[x_(512, 512, 256)-aten_matmul]_latency": "1.5",
        f"{key}[x_(512, 512, 256)-aten_matmul]_accuracy": 1.0,
        f"{key}[x_(512, 512, 256)-tlx_clc]_latency": "n/a",
        f"{key}[x_(512, 512, 256)-tlx_clc]_speedup": "n/a",
        f"{key}[x_(512, 512, 256)-tlx_clc]_accuracy": 0.0,
        f"{key}[x_average-aten_matmul]_latency": "1.0",
        f"{key}[x_average-aten_matmul]_accuracy": 1.0,
        f"{key}[x_average-tlx_clc]_latency": "0.25",
        f"{key}[x_average-tlx_clc]_speedup": 2.0,
        f"{key}[x_average-tlx_clc]_accuracy": 0.5,
        f"{key}[aten_matmul]-latency-avg": 1.0,
        f"{key}[aten_matmul]-accuracy-avg": 1.0,
        f"{key}[tlx_clc]-latency-avg": 0.25,
        f"{key}[tlx_clc]-speedup-avg": 2.0,
        f"{key}[tlx_clc]-accuracy-avg": 0.5,
    }


def test_failures_take_the_first_cell():
    values = {"aten_matmul": (0.5, 0.1), "tlx_clc": Measurement(error="OSError: a; b")}
    csv, flat = written(results(["latency", "error"], {SMALL: values}))
    assert csv.splitlines()[1] == '(16, 8, 4);0.5;0.1;"OSError: a; b";'
    assert flat["tritonbench_gemm_fwd[x_(16, 8, 4)-tlx_clc]_latency"] == "OSError: a; b"
    assert flat["tritonbench_gemm_fwd[x_(16, 8, 4)-tlx_clc]_error"] is None
    assert flat["tritonbench_gemm_fwd[x_average-tlx_clc]_latency"] is None
    assert not any("tlx_clc]-" in key for key in flat)
    # An inaccurate result without the metric that tells so.
    wrong = Measurement({"error": 9.0, "accuracy": 0.0}, inaccurate="9 times the bound")
    csv, _ = written(results(["latency", "error"], {SMALL: {"tlx_clc": wrong}}))
    assert csv.splitlines()[1] == "(16, 8, 4);inaccurate, 9 times the bound;".replace("'", '"')


def test_json_has_no_infinity():
    _, flat = written(results(["error"], {SMALL: {"tlx_clc": (float("inf"),)}}))
    assert flat["tritonbench_gemm_fwd[x_(16, 8, 4)-tlx_clc]_error"] == "inf"


def test_nothing_measured_is_a_header():
    empty = Results(["aten_matmul"], "aten_matmul", ["error"])
    csv, flat = written(empty)
    assert csv == "(M, N, K);aten_matmul-error\r\n" and flat == {}
    assert empty.to_text().splitlines()[0].split() == ["(M,", "N,", "K)", "aten_matmul-error"]


def test_narrow_terminals_get_a_row_for_each_backend():
    wide = EXAMPLE.to_text()
    assert EXAMPLE.to_text(len(wide.splitlines()[0])) == wide
    narrow = EXAMPLE.to_text(len(wide.splitlines()[0]) - 1).splitlines()
    assert [line.split() for line in narrow[2:]] == [
        ["(16,", "8,", "4)", "aten_matmul", "0.5", "1"],
        ["tlx_clc", "0.25", "2", "1"],
        ["(512,", "512,", "256)", "aten_matmul", "1.5", "1"],
        ["tlx_clc", "n/a", "n/a", "0"],
        ["average", "aten_matmul", "1", "1"],
        ["tlx_clc", "0.25", "2", "0.5"],
    ]
    assert len(narrow[0]) < len(wide.splitlines()[0])


@pytest.mark.parametrize("form", ["csv", "json"])
def test_our_results_reader_takes_them(tmp_path, form):
    path = tmp_path / f"fp16.{form}"
    with path.open("w", newline="") as file:
        getattr(EXAMPLE, f"write_{form}")(file)
    run = read(path)
    (small, large) = run.results
    assert (small.shape, large.shape, small.benchmark.dtype) == (SMALL, LARGE, "fp16")
    assert run.results[small]["tlx_clc"] == {"latency": 0.25, "speedup": 2.0, "accuracy": 1.0}
    assert run.results[large]["tlx_clc"] == {"latency": "n/a", "speedup": "n/a", "accuracy": 0.0}


# Numbers through tritonbench's own classes.
IN_TRITONBENCH = """
import io, json, sys
from tritonbench.components.do_bench.run import Latency
from tritonbench.utils import triton_op

for name in ("aten_matmul", "tlx_clc"):
    baseline = name == "aten_matmul"
    triton_op.register_benchmark("gemm", name, baseline=baseline)(lambda operator: None)
triton_op.REGISTERED_X_VALS["gemm"] = "(M, N, K)"

def measured(values):
    if isinstance(values, str):
        return triton_op.BenchmarkOperatorMetrics(error_msg=values, extra_metrics={})
    if "latency" in values:
        values["latency"] = Latency([values["latency"]])
    return triton_op.BenchmarkOperatorMetrics(**values, extra_metrics={})

def written(metrics, rows):
    rows = [(tuple(shape), {b: measured(v) for b, v in row.items()}) for shape, row in rows]
    result = triton_op.BenchmarkOperatorResult(None, "gemm", "fwd", metrics, False, rows)
    csv, text = io.StringIO(newline=""), io.StringIO()
    result.write_csv_to_file(csv)
    result.write_json_to_file(text)
    return csv.getvalue(), json.loads(text.getvalue()), str(result)

print(json.dumps([written(*case) for case in json.load(sys.stdin)]))
"""
CASES = {
    "times": ["latency", "tflops", "speedup"],
    "no times": ["tflops", "speedup"],
    "an error": ["tflops"],
}
VALUES = {
    SMALL: {
        "aten_matmul": {"latency": 0.5, "tflops": 1.25, "speedup": 1.0},
        "tlx_clc": {"latency": 0.25, "tflops": 1e-7, "speedup": 2.0},
    },
    LARGE: {
        "aten_matmul": {"latency": 1.75, "tflops": 300.0, "speedup": 1.0},
        "tlx_clc": {"latency": 3.0, "tflops": 123456789.0, "speedup": 0.1},
    },
}


def values(case):
    """By shape and backend the values of a case, or the error's text."""
    table = {
        shape: {b: {m: v[m] for m in CASES[case]} for b, v in row.items()}
        for shape, row in VALUES.items()
    }
    if case == "an error":
        table[LARGE]["tlx_clc"] = "planted; error"
    return table


@pytest.fixture(scope="module")
def in_tritonbench():
    """CSV, JSON and table of each case."""
    done = subprocess.run(
        [sys.executable, "-c", IN_TRITONBENCH],
        input=json.dumps([[CASES[case], list(values(case).items())] for case in CASES]),
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@needs_harness
@pytest.mark.parametrize("case", CASES)
def test_the_same_as_tritonbench_writes(in_tritonbench, case):
    csv, flat, table = in_tritonbench[case]
    rows = [
        (
            shape,
            {
                b: Measurement(error=v) if isinstance(v, str) else Measurement(v)
                for b, v in row.items()
            },
        )
        for shape, row in values(case).items()
    ]
    ours = Results(["aten_matmul", "tlx_clc"], "aten_matmul", CASES[case], rows)
    our_csv, our_flat = written(ours)
    if case == "an error":
        # tritonbench divides sums by the number of all shapes, those without a result included.
        csv, our_csv = (text.rpartition("average")[0] for text in (csv, our_csv))
        for form in (flat, our_flat):
            del form["tritonbench_gemm_fwd[x_average-tlx_clc]_tflops"]
            del form["tritonbench_gemm_fwd[tlx_clc]-tflops-avg"]
    if case == "times":
        # Ours is a string, as all other latencies are.
        for backend in ("aten_matmul", "tlx_clc"):
            key = f"tritonbench_gemm_fwd[x_average-{backend}]_latency"
            flat[key] = str(flat[key])
    assert our_csv == csv
    assert list(our_flat.items()) == list(flat.items())
    if case == "no times":  # tritonbench adds their spread
        assert ours.to_text() == table

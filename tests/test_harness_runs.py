"""The command in the real tritonbench, on the emulated device. Each start of it takes seconds."""

import csv
import json
import os
import subprocess
import sys

import pytest
import same_inputs
from bad_backends import BACKENDS as BAD
from harness_checkout import CHECKOUT, ROOT, TESTS, needs_harness

from tlx_clc_plugin.bench import runner

pytestmark = needs_harness

EMULATED = ("stolen_tiles", "instructions", "tiles_per_cta_min", "tiles_per_cta_max")


def tritonbench(folder, *argv):
    path = os.pathsep.join(map(str, (ROOT, TESTS, CHECKOUT)))
    done = subprocess.run(
        [sys.executable, "-m", "tlx_clc_plugin", "bench", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    lines = done.stderr.splitlines()
    said = [line.removeprefix("tritonbench: ") for line in lines if line.startswith("tritonbench:")]
    return done, said


def cell(results, backend, x_value, metric):
    return results[f"tritonbench_gemm_fwd[x_{x_value}-{backend}]_{metric}"]


def test_good_backends_beside_bad_ones(tmp_path):
    bad = [name for name in BAD if name not in ("bad_hangs", "bad_dies")]
    ours = ["tlx_persistent", "tlx_clc"]
    good = ["aten_matmul", "good", "triton_tutorial_matmul", *ours]
    shapes = {"130x72x512": "(130, 72, 512)", "33x17x64": "(33, 17, 64)"}
    metrics = ("accuracy", "tlx_accuracy", "tlx_error", *EMULATED)
    done, said = tritonbench(
        tmp_path,
        *("--op", "gemm", "--plugin", "bad_backends.register", "--shapes", ",".join(shapes)),
        *("--only", ",".join([*bad, *good]), "--metrics", ",".join(metrics), "--sms", "2"),
        *("--output-json", "out.json", "--output", "out.csv"),
    )
    assert done.returncode == 1, done.stderr
    # One line for each bad backend and input, none for the others.
    assert sorted(line.split(":")[0] for line in said) == sorted(
        f"gemm {name} {x_value}" for name in bad for x_value in shapes.values()
    )
    reasons = {line.split()[1]: line for line in said}
    assert reasons["bad_raises_at_setup"].endswith("planted at set-up; second; third")
    assert reasons["bad_wrong_dtype"].endswith("got torch.float32, expected torch.float16")

    results = json.loads((tmp_path / "out.json").read_text())
    assert all(cell(results, b, x, "tlx_accuracy") == 1 for b in good for x in shapes.values())
    wrong = [name for name in bad if "raises" not in name and name != "bad_returns_none"]
    assert all(cell(results, b, x, "tlx_accuracy") == 0 for b in wrong for x in shapes.values())
    # What the harness itself takes for right.
    assert cell(results, "bad_zeros", "(130, 72, 512)", "accuracy") == 1
    assert cell(results, "tlx_clc", "(130, 72, 512)", "accuracy") == 1
    rows = list(csv.reader((tmp_path / "out.csv").open(), delimiter=";"))
    assert [row[0] for row in rows] == ["(M, N, K)", *shapes.values(), "average"]
    # The aligned columns of the good backends; errors are quoted in those of the bad.
    column = rows[0].index("tlx_clc-tlx_accuracy")
    assert {row[column] for row in rows[1:]} == {"1.0"}


@pytest.mark.parametrize("arch, ours", [("sm_100a", "clc"), ("sm_90a", "dynamic")])
def test_the_two_runners_give_the_same_table(tmp_path, arch, ours):
    columns = {"tlx_accuracy": "accuracy", "tlx_error": "error", **{m: m for m in EMULATED}}
    argv = [
        *("--only", f"aten_matmul,tlx_persistent,tlx_{ours}", "--layout", "nt", "--sms", "2"),
        *("--shapes", "130x72x512,33x17x64,300x300x24", "--arch", arch, "--policy", "random"),
        *("--precision", "fp16", "--seed", str(same_inputs.SEED), "--metrics"),
    ]
    plugin = ["--op", "gemm", "--plugin", "same_inputs.register", "--output", "harness.csv"]
    done, _ = tritonbench(tmp_path, *argv, ",".join(columns), *plugin)
    assert done.returncode == 0, done.stderr
    embedded = [*argv, ",".join(columns.values()), "--output", str(tmp_path / "embedded.csv")]
    assert runner.run(embedded, "a test") == 0

    def table(file):
        return list(csv.reader((tmp_path / file).open(), delimiter=";"))

    (header, *rows), (embedded_header, *embedded_rows) = table("harness.csv"), table("embedded.csv")
    for name, embedded_name in zip(header[1:], embedded_header[1:], strict=True):
        backend, _, metric = name.rpartition("-")
        assert embedded_name == f"{backend}-{columns[metric]}"
    # Counts of a backend that launches nothing: empty, or n/a in words.
    embedded_rows = [[cell.replace("n/a", "") for cell in row] for row in embedded_rows]
    assert len(rows) == 4 and [row[0] for row in rows] == [row[0] for row in embedded_rows]
    for row, embedded_row in zip(rows, embedded_rows, strict=True):
        for cell, embedded_cell in zip(row[1:], embedded_row[1:], strict=True):
            assert (cell and float(cell)) == (embedded_cell and float(embedded_cell))
    assert sum(map(bool, rows[0][1:])) == 2 + 2 * len(columns)


def test_a_child_process_knows_all_that_its_parent_was_told(tmp_path):
    done, said = tritonbench(
        tmp_path,
        *("--op=gemm", "--isolate", "-d", "emulated", "--plugin", "bad_backends.register"),
        *("--only", "aten_matmul,good,tlx_dynamic,bad_nan", "--m", "64", "--n", "64", "--k", "40"),
        *("--bias", "64", "--precision", "bf16", "--layout", "nt", "--policy", "random"),
        *("--arch", "sm_90a"),
        *("--output-dir", "."),
    )
    assert done.returncode == 1, done.stderr
    assert len(said) == 1 and said[0].startswith("gemm bad_nan (64, 64, 40): inaccurate")
    results = json.loads((tmp_path / "gemm.json").read_text())
    for backend in ("aten_matmul", "good", "tlx_dynamic"):
        assert cell(results, backend, "(64, 64, 40)", "tlx_accuracy") == 1

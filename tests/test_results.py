"""tlx-clc results, on files of known content; test_results_harness.py has the harness's own."""

import csv
import io
import json
import random
import statistics

import pytest

from tlx_clc_plugin import cli

SHAPES = [(64, 64, 64), (129, 257, 8)]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def numbers(seed, shapes=SHAPES, backends=("aten_matmul", "tlx_clc")):
    """What a run measured: {(shape, backend, metric): value}."""
    rng = random.Random(seed)
    return {
        (shape, backend, metric): rng.uniform(0.1, 10)
        for shape in shapes
        for backend in backends
        for metric in ("latency", "tflops")
    }


def write_json(path, values, op="gemm_fwd", **more):
    """In the harness's format: latency a string, an average row, average keys."""
    flat = {
        f"tritonbench_{op}[x_{shape}-{backend}]_{metric}": (
            str(value) if metric == "latency" and isinstance(value, float) else value
        )
        for (shape, backend, metric), value in values.items()
    }
    for _, backend, metric in values:
        flat[f"tritonbench_{op}[x_average-{backend}]_{metric}"] = 0.5
        flat[f"tritonbench_{op}[{backend}]-{metric}-avg"] = 0.5
    path.write_text(json.dumps(flat | more, indent=4))


def write_csv(path, values):
    columns = list(dict.fromkeys(where[1:] for where in values))
    with path.open("w", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["(M, N, K)", *("-".join(column) for column in columns)])
        for shape in dict.fromkeys(where[0] for where in values):
            rows.writerow([shape, *(values[(shape, *column)] for column in columns)])
        rows.writerow(["average", *(0.5 for _ in columns)])


def results(capsys, *argv):
    """Exit status, stdout and stderr's lines of the command."""
    status = cli.main(["results", *map(str, argv)])
    captured = capsys.readouterr()
    assert (status == 0) == (captured.err == "")
    return status, captured.out, captured.err.splitlines()


def merged(capsys, *argv):
    """The merged results, {(dtype, shape, backend, metric): text}, of files without a fault."""
    status, out, _ = results(capsys, *argv, "--csv")
    assert status == 0
    return parse(out)


def parse(out):
    header, *rows = csv.reader(io.StringIO(out), delimiter=";")
    assert header[:3] == ["(M, N, K)", "dtype", "mode"]
    cells = {}
    for shape, dtype, mode, *values in rows:
        assert mode == "fwd"
        for column, value in zip(header[3:], values, strict=True):
            cells[(dtype, shape, *column.split("-", 1))] = value
    return cells


def expected(**runs):
    return {
        (dtype, str(shape), backend, metric): repr(value)
        for dtype, values in runs.items()
        for (shape, backend, metric), value in values.items()
    }


@pytest.mark.parametrize("write", [write_json, write_csv])
@pytest.mark.parametrize("seed", range(3))
def test_equal_keys_of_two_dtypes_stay_apart(capsys, tmp_path, write, seed):
    half, brain = numbers(seed), numbers(seed + 100)
    write(tmp_path / "a", half)
    write(tmp_path / "b", brain)
    write(tmp_path / "bf16_gemm_fwd.json", brain)
    both = expected(fp16=half, bf16=brain)
    assert merged(capsys, "a=fp16", "b=bf16") == both
    assert merged(capsys, "a", "bf16_gemm_fwd.json", "--precision", "fp16") == both
    assert merged(capsys, "a=fp16", "b=bf16", "bf16_gemm_fwd.json") == both


def test_dtype_in_the_keys_and_in_a_file_name_with_an_equals_sign(capsys, tmp_path):
    values = numbers(0)
    write_json(tmp_path / "sms=4", values, op="bf16_gemm_fwd")
    assert merged(capsys, "sms=4") == expected(bf16=values)
    status, out, (line,) = results(capsys, "sms=4=fp16")
    assert (status, out) == (1, "") and "sms=4" in line and "bf16, not fp16" in line


def test_files_of_different_backends_and_shapes_complement_each_other(capsys, tmp_path):
    values = numbers(1)
    write_json(tmp_path / "aten", {w: v for w, v in values.items() if w[1] == "aten_matmul"})
    few = {w: v for w, v in values.items() if w[1] == "tlx_clc" and w[0] == SHAPES[1]}
    write_csv(tmp_path / "tlx", few)
    cells = merged(capsys, "aten", "tlx", "--precision", "fp16")
    assert {where: cell for where, cell in cells.items() if cell} == expected(
        fp16={w: v for w, v in values.items() if w[1] == "aten_matmul" or w in few}
    )
    assert len(cells) == len(values)


def test_two_runs_of_the_same_thing_are_refused(capsys, tmp_path):
    first, second = numbers(1), numbers(2)
    write_json(tmp_path / "first", first)
    write_json(tmp_path / "second", second)
    status, out, (line,) = results(capsys, "first=fp16", "second=fp16", "--csv")
    assert status == 1 and parse(out) == expected(fp16=first)
    assert "second: " in line and "aten_matmul at (64, 64, 64) fp16 fwd" in line


BAD_FILES = {
    "absent": (None, "No such file"),
    "empty": (b" \n", "empty file"),
    "binary": (b"\x89PNG\xff\xfe", "not a text file"),
    "crashed": (b"{}", "no results"),
    "only_averages": (b'{"tritonbench_gemm_fwd[a]-tflops-avg": 1.0}', "no results"),
    "passed_nothing": (b'{"tritonbench_gemm_fwd-pass": 1}', "no results"),
    "truncated": (b'{"tritonbench_gemm_fwd[x_(1, 1, 1)-a]_tflops": 1.', "truncated"),
    "foreign_json": (b'{"name": "nightly", "metrics": {}}', "'name'"),
    "other_op": (b'{"tritonbench_vector_add_fwd[x_64-a]_latency": "1.0"}', "vector_add"),
    "longer_op": (b'{"tritonbench_fp8_gemm_fwd[x_(1, 1, 1)-a]_latency": "1"}', "fp8_gemm"),
    "no_shape": (b'{"tritonbench_gemm_fwd[x_(1, 1)-a]_latency": "1.0"}', "(1, 1)"),
    "list_value": (b'{"tritonbench_gemm_fwd[x_(1, 1, 1)-a]_latency": [1]}', "[1]"),
    "foreign_text": (b"#!/bin/sh\n", "#!/bin/sh"),
    "other_csv": (b"x_val;a-latency\n64;1.0\naverage;1.0\n", "x_val"),
    "merged_csv": (b"(M, N, K);dtype\n(1, 1, 1);fp16\naverage;\n", "'dtype'"),
    "header_only": (b"(M, N, K);a-latency\n", "no results"),
    "no_average": (b"(M, N, K);a-latency\n(1, 1, 1);1.0\n", "average"),
    "short_row": (b"(M, N, K);a-x;b-x\n(1, 1, 1);1.0\naverage;1.0;1.0\n", "2 fields, not 3"),
    "twice": (b"(M, N, K);a-x\n(1, 1, 1);1\n(1, 1, 1);2\naverage;1\n", "two rows (1, 1, 1)"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_and_the_others_shown(capsys, tmp_path, name):
    content, words = BAD_FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    values = numbers(3)
    write_json(tmp_path / "good.json", values)
    files = [f"{name}=bf16", "good.json=fp16"]
    status, out, (line,) = results(capsys, *files, "--csv")
    assert status == 1 and parse(out) == expected(fp16=values)
    assert line.startswith(f"tlx-clc results: {name}: ") and words in line
    _, out, _ = results(capsys, *files, "--json")
    flat = json.loads(out)
    assert flat["tritonbench_fp16_gemm_fwd-pass"] == 1
    assert flat["tritonbench_bf16_gemm_fwd-pass"] == 0


@pytest.mark.parametrize("name", ["run.json", "fp16_and_bf16.json"])
def test_an_unknown_dtype_is_not_guessed(capsys, tmp_path, name):
    write_json(tmp_path / name, numbers(0))
    status, out, (line,) = results(capsys, name)
    assert (status, out) == (1, "") and name in line and "dtype unknown" in line


@pytest.mark.parametrize("flags", ["run.json=fp17", "a --precision int4", "a --mode train"])
def test_bad_arguments_are_refused(capsys, flags):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["results", *flags.split()])
    assert exit_.value.code == 2
    assert flags.replace("=", " ").split()[-1] in capsys.readouterr().err


SHAPE = (8, 16, 32)
FAILURES = {
    "CUDA OOM": {"latency": "CUDA OOM", "tflops": None},
    "no result": {"latency": None, "tflops": None},
    "inaccurate": {"latency": 1.5, "accuracy": 0.0},
    "inaccurate ": {"latency": 1.5, "accuracy": 1.0, "tlx_accuracy": 0.0},
    "tflops is nan": {"latency": 1.5, "tflops": float("nan")},
    "tlx_error is inf": {"latency": 1.5, "tlx_error": float("inf")},
    "two lines; one row": {"best_config": "two\n lines; one row", "latency": None},
    "outputs of repeated runs differ": {"latency": 1.5, "determinism": "fail"},
}


@pytest.mark.parametrize("write", [write_json, write_csv])
@pytest.mark.parametrize("reason", FAILURES)
def test_failures_stay_failures(capsys, tmp_path, write, reason):
    values = {(SHAPE, "good", "latency"): 2.5} | {
        (SHAPE, "bad", metric): value for metric, value in FAILURES[reason].items()
    }
    write(tmp_path / "fp16", values)
    status, out, (line,) = results(capsys, "fp16", "--csv", "--hud", "hud", "--result-json", "r")
    assert status == 1
    assert line == f"tlx-clc results: bad at {SHAPE} fp16 fwd: {reason.strip()}"
    cells = parse(out)
    for metric, value in FAILURES[reason].items():
        cell = cells["fp16", str(SHAPE), "bad", metric]
        if value == 0 or value is None:
            assert cell == ("inaccurate" if value == 0 else "no result")
        else:
            assert cell == (value if isinstance(value, str) else repr(value))

    records = [json.loads(line) for line in (tmp_path / "hud").read_text().splitlines()]
    assert not any("NaN" in line or "Infinity" in line for line in (tmp_path / "r").open())
    told = {
        (r["model"]["backend"], r["metric"]["name"]): r["metric"]["benchmark_values"]
        for r in records
    }
    accuracies = {("bad", m): [v] for m, v in FAILURES[reason].items() if "accuracy" in m}
    good = {("good", "latency"): [2.5], ("good", "latency-avg"): [2.5]}
    assert told == good | accuracies | {(None, "pass"): [0.0]}


def test_texts_and_what_is_not_applicable_are_no_failures(capsys, tmp_path):
    texts = {
        "best_config-BLOCK_M": 128,
        "latency": "n/a",
        "determinism": "non_deterministic",
        "compile_time": None,
    }
    values = {(SHAPE, "tlx_clc", metric): value for metric, value in texts.items()}
    write_json(tmp_path / "fp16", values)
    cells = merged(capsys, "fp16", "--hud", "hud")
    words = ["128.0", "n/a", "non_deterministic", "no result"]
    assert list(cells.values()) == words
    (record,) = map(json.loads, (tmp_path / "hud").read_text().splitlines())
    assert (record["metric"]["name"], record["metric"]["benchmark_values"]) == ("pass", [1.0])


@pytest.mark.parametrize("name", ["fp16.json", "fp16.csv"])
def test_the_one_metric_without_a_backend(capsys, tmp_path, name):
    (tmp_path / "fp16.json").write_text(
        '{"tritonbench_gemm_fwd[x_(8, 16, 32)-hw_roofline]_": 989.5,'
        ' "tritonbench_gemm_fwd[x_(8, 16, 32)-aten]_tflops": 1.5}'
    )
    csv_text = "(M, N, K);hw_roofline;aten-tflops\n(8, 16, 32);989.5;1.5\n\naverage;989.5;1.5\n"
    (tmp_path / "fp16.csv").write_text(csv_text)
    status, out, _ = results(capsys, name, "--csv", "--hud", "hud")
    assert status == 0
    assert out == "(M, N, K);dtype;mode;hw_roofline;aten-tflops\n(8, 16, 32);fp16;fwd;989.5;1.5\n"
    assert "989.5" not in (tmp_path / "hud").read_text()


def test_a_run_that_did_not_pass(capsys, tmp_path):
    write_json(tmp_path / "bf16_gemm_fwd.json", {}, **{"tritonbench_bf16_gemm_fwd-pass": 0})
    status, out, (line,) = results(capsys, "bf16_gemm_fwd.json", "--hud", "hud")
    assert (status, out) == (1, "") and "bf16_gemm_fwd.json: bf16 fwd did not pass" in line
    (record,) = map(json.loads, (tmp_path / "hud").read_text().splitlines())
    assert record["benchmark"]["dtype"] == "bf16"
    assert (record["metric"]["name"], record["metric"]["benchmark_values"]) == ("pass", [0.0])


def test_the_table_has_every_result(capsys, tmp_path):
    half, brain = numbers(5), numbers(6)
    brain[SHAPES[0], "tlx_clc", "latency"] = "Triton OOR: " + "out of shared memory " * 5
    write_json(tmp_path / "fp16", half)
    write_json(tmp_path / "bf16", brain)
    _, out, _ = results(capsys, "fp16", "bf16")
    backends, metrics, _, *rows = out.splitlines()
    assert backends.split()[-4:] == ["aten_matmul", "aten_matmul", "tlx_clc", "tlx_clc"]
    assert metrics.split() == ["latency", "tflops"] * 2
    assert len(rows) == 2 * len(SHAPES)
    for value in (*half.values(), *brain.values()):
        assert (f"{value:.6g}" if isinstance(value, float) else "Triton OOR: out of") in out
    assert max(map(len, out.splitlines())) < 140


def test_merged_json_is_read_again(capsys, tmp_path):
    half, brain = numbers(7), numbers(8)
    half[SHAPES[0], "tlx_clc", "latency"] = "CUDA OOM"
    brain[SHAPES[0], "tlx_clc", "tflops"] = float("inf")
    brain[SHAPES[1], "tlx_clc", "latency"] = None
    write_json(tmp_path / "fp16", half)
    write_json(tmp_path / "bf16", brain)
    status, once, lines = results(capsys, "fp16", "bf16", "--json")
    assert status == 1 and len(lines) == 2
    json.loads(once, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (tmp_path / "merged").write_text(once)
    status, again, relines = results(capsys, "merged", "--json")
    assert (status, again) == (1, once) and set(lines) < set(relines)


def test_averages_are_over_the_same_shapes_for_all(capsys, tmp_path):
    values = numbers(9, backends=("whole", "failing", "partial", "gappy"))
    values[SHAPES[0], "failing", "latency"] = "CUDA OOM"
    del values[SHAPES[1], "partial", "latency"], values[SHAPES[1], "partial", "tflops"]
    values[SHAPES[1], "gappy", "tflops"] = None
    write_json(tmp_path / "fp16", values)
    results(capsys, "fp16", "--result-json", "result.json")
    metrics = json.loads((tmp_path / "result.json").read_text())["metrics"]
    averages = {key: value for key, value in metrics.items() if key.endswith("-avg")}
    mean = {
        f"tritonbench_fp16_gemm_fwd[{backend}]-{metric}-avg": statistics.mean(
            values[shape, backend, metric] for shape in SHAPES
        )
        for backend, metric in (("whole", "latency"), ("whole", "tflops"), ("gappy", "latency"))
    }
    assert averages == pytest.approx(mean, rel=1e-12)


def test_what_a_record_cannot_hold_is_named(capsys, tmp_path):
    values = {
        (SHAPE, "Cutlass", "latency"): 1.5,
        (SHAPE, "aten_matmul", "p99"): 2.5,
        (SHAPE, "aten_matmul", "latency"): 3.5,
    }
    write_json(tmp_path / "fp16", values)
    write_csv(tmp_path / "bf16", values)
    status, _, lines = results(capsys, "fp16", "--hud", "hud")
    assert status == 1
    assert [line.split(":")[2] for line in lines] == [" backend 'Cutlass'", " metric 'p99'"]
    records = (tmp_path / "hud").read_text()
    assert "3.5" in records and "1.5" not in records and "2.5" not in records

    status, _, lines = results(capsys, "bf16", "--mode", "fwd_no_grad", "--hud", "hud")
    assert status == 1 and (tmp_path / "hud").read_text() == ""
    assert any("mode 'fwd_no_grad'" in line for line in lines)


def test_an_output_file_that_cannot_be_written(capsys, tmp_path):
    write_json(tmp_path / "fp16", numbers(0))
    status, out, (line,) = results(capsys, "fp16", "--hud", "absent/hud")
    assert status == 1 and out and "absent/hud: No such file or directory" in line

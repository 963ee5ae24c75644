"""The verdict on one run: each word, what fails, and what is refused."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace
from nights import H200, VERSIONS, cell, history, night, noisy

from tlx_clc_plugin.cli import main
from tlx_clc_plugin.guard.compare import compare, to_json, to_markdown
from tlx_clc_plugin.guard.saved import Refused, Saved, read, window
from tlx_clc_plugin.guard.verdict import GATES, Gate, Report, doubts, judge
from tlx_clc_plugin.nightly.night import dump


def run(*cells, **changes) -> Saved:
    return replace(Saved(H200, None, VERSIONS, {}, list(cells)), **changes)


def save(path, saved: Saved):
    path.write_bytes(msgspec.json.encode({"tlx_clc_plugin": saved}))
    return path


def count(value: float):
    """A cell of mode "compile", without noise."""
    kind = {"mode": "compile", "metric": "instructions", "better": "lower"}
    id = f"{cell(mode='compile').id}/instructions"
    return cell(id=id, value=value, low=value, high=value, **kind)


def failed(status: str, **changes):
    return cell(value=None, status=status, reason="since", **changes)


def word(base, head, gates=GATES) -> str:
    """Of the one cell; a second, equal one makes sure that there is something to compare."""
    other = cell(backend="other")
    report = judge(run(*base, other), run(*head, other), gates)
    (judged,) = [j for j in report.judged if j.cell != other.id]
    assert report.ok == (judged.word in ("ok", "faster", "noisy", "skipped"))
    return judged.word


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ([cell(value=1.0)], [cell(value=1.0)], "ok"),
        ([cell(value=1.0)], [cell(value=0.94)], "slower"),
        ([cell(value=1.0)], [cell(value=1.06)], "faster"),
        # Significant, but too small to matter.
        ([cell(value=1.0, low=1.0, high=1.0)], [cell(value=0.98, low=0.98, high=0.98)], "ok"),
        # Large, but within noise; and noise that hides what matters.
        ([cell(value=1.0, low=0.971, high=1.029)], [cell(value=0.965, low=0.94, high=0.99)], "ok"),
        ([cell(value=1.0)], [cell(value=0.99, low=0.95, high=1.03)], "noisy"),
        # A loss that even such noise does not explain.
        ([cell(value=1.0)], [cell(value=0.8, low=0.75, high=0.85)], "slower"),
        ([count(1000.0)], [count(1010.0)], "slower"),
        ([count(1000.0)], [count(990.0)], "faster"),
        ([count(1000.0)], [count(1001.0)], "ok"),
        ([count(0.0)], [count(4.0)], "slower"),
        ([count(0.0)], [count(0.0)], "ok"),
        ([cell()], [], "missing"),
        ([failed("error")], [], "missing"),
        ([], [cell()], "ok"),
        ([failed("error")], [cell()], "ok"),
        ([cell()], [failed("wrong")], "wrong"),
        ([cell()], [failed("error")], "error"),
        ([cell()], [failed("skipped")], "skipped"),
        ([], [failed("wrong")], "wrong"),
        ([cell()], [cell(metric="tflops")], "error"),
    ],
)
def test_words(base, head, expected):
    assert word(base, head) == expected


def test_a_renamed_benchmark_is_missing_by_its_old_name_and_new_by_the_other():
    other = cell(backend="other")
    report = judge(run(cell(), other), run(cell(layout="tt"), other))
    words = {j.cell: (j.word, j.why) for j in report.judged}
    assert words[cell().id][0] == "missing"
    assert words[cell(layout="tt").id] == ("ok", "new: not in the baseline")
    assert not report.ok


def test_gates_are_configurable_for_each_benchmark(tmp_path):
    base, head = [cell(value=1.0)], [cell(value=0.94)]
    assert word(base, head, (*GATES, Gate("*/tlx_persistent/*", 0.1))) == "ok"
    assert word(base, head, (*GATES, Gate("*/tlx_clc/*", 0.1))) == "slower"
    assert word(base, head, (*GATES, Gate("*", 0.03, bands=20))) == "ok"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": replace(H200, name="NVIDIA H100")}, "GPU name NVIDIA H200"),
        ({"gpu": replace(H200, power_limit_w=500.0)}, "power_limit_w 700.0"),
        ({"gpu": replace(H200, driver="590.1")}, "driver major 580"),
        ({"gpu": None}, "no GPU"),
        ({"versions": replace(VERSIONS, torch="2.14")}, "torch 2.13.0"),
        ({"versions": replace(VERSIONS, fbtriton="3.8")}, "fbtriton 3.7.4"),
        ({"harness": "tritonbench 13ecc78"}, "harness embedded"),
    ],
)
def test_another_machine_or_toolchain_is_refused(change, said):
    for pair in ((run(cell()), run(cell(), **change)), (run(cell(), **change), run(cell()))):
        with pytest.raises(Refused, match=said.split(" ")[0]):
            judge(*pair)
    with pytest.raises(Refused, match=said):
        judge(run(cell()), run(cell(), **change))
    minor = replace(H200, driver="580.99")
    assert judge(run(cell()), run(cell(), gpu=minor)).ok


def test_a_noisy_or_host_bound_baseline_is_doubted():
    noisy_cell = cell(value=1.0, low=0.96, high=1.04)
    host_bound = cell(figures={"host_us": 40.0, "latency_us": 20.0})
    for doubtful, said in ((noisy_cell, "noisy"), (host_bound, "bound by the host")):
        (words,) = doubts(run(doubtful, cell(backend="other")))
        assert doubtful.id in words and said in words
    assert doubts(run(cell(figures={"host_us": 10.0, "latency_us": 20.0}), count(1.0))) == []


def test_a_run_in_which_nothing_can_be_compared_fails():
    assert not judge(run(cell()), run(cell(layout="tt"))).ok
    assert judge(run(failed("skipped")), run(failed("skipped"))).faults
    assert not Report([], faults=["x"]).ok


def test_the_command_tells_by_its_status(tmp_path, capsys):
    good = cell(value=1.0)
    base = str(save(tmp_path / "base.json", run(good)))
    cases = {
        "same": (run(good), 0, "1 ok. ok"),
        "slower": (run(cell(value=0.9)), 1, "1 slower. FAILED"),
        "wrong": (run(failed("wrong")), 1, "1 wrong. FAILED"),
        "renamed": (run(cell(layout="tt")), 1, "missing"),
        "machine": (run(good, gpu=replace(H200, name="H100")), 2, "refused: GPU name"),
        "none": (run(), 2, "holds no benchmark"),
    }
    for name, (saved, status, said) in cases.items():
        head = str(save(tmp_path / f"{name}.json", saved))
        assert main(["compare", base, head]) == status, name
        captured = capsys.readouterr()
        assert said in captured.out + captured.err, name
    doubtful = str(save(tmp_path / "doubtful.json", run(cell(value=1.0, low=0.9, high=1.1))))
    assert main(["compare", doubtful, base]) == 2
    assert "is no baseline" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"tlx_clc_plugin": {"cells": 3}}'])
def test_a_file_that_is_no_run_is_refused_by_name(tmp_path, content):
    path = tmp_path / "head.json"
    path.write_bytes(content)
    with pytest.raises(Refused, match="head.json"):
        read(path)
    with pytest.raises(Refused, match="none.json"):
        read(tmp_path / "none.json")


def test_gates_of_a_file(tmp_path):
    paths = [save(tmp_path / f"{v}.json", run(cell(value=v))) for v in (1.0, 0.94)]
    names = [str(path) for path in paths]
    gates = tmp_path / "gates"
    gates.write_text('[{"cells": "gemm/*", "change": 0.1}]')
    assert main(["compare", *names]) == 1
    assert main(["compare", *names, "--gates", str(gates)]) == 0
    gates.write_text('[{"cells": "gemm/*", "changes": 0.1}]')
    assert main(["compare", *names, "--gates", str(gates)]) == 2


def test_reports_tell_the_same_and_markdown_holds_no_markup_of_ours(tmp_path):
    base = save(tmp_path / "base.json", run(cell(value=1.0), cell(backend="other")))
    bad = cell(value=None, status="error", reason="a|b <script>\nc")
    head = save(tmp_path / "head.json", run(bad, cell(backend="other")))
    files = tmp_path / "out.json", tmp_path / "out.md"
    status = main(
        ["compare", str(base), str(head), "--json", str(files[0]), "--markdown", str(files[1])]
    )
    assert status == 1
    report = compare(base, head, None)
    content = json.loads(files[0].read_text())
    assert content == json.loads(to_json(report)) and content["status"] == "fail"
    words = {j["cell"]: j["word"] for j in content["judged"]}
    assert words == {bad.id: "error", cell(backend="other").id: "ok"}
    text = files[1].read_text()
    assert text == to_markdown(report)
    assert "a\\|b &lt;script> c" in text and "<script>" not in text


def test_the_rolling_window_sees_what_the_pinned_baseline_does_not(tmp_path):
    nights = history(noisy(20, 1, cells=10))
    for each in nights:
        dump(each, tmp_path / "results")
    good = run(*nights[-1].cells)
    first = good.cells[0]
    level = {c.id: c.value for c in window(nights, good).cells}[first.id]
    # As fast as a baseline pinned long ago, but 8 % slower than of late.
    worse = cell(value=level * 0.92, id=first.id, shape=first.shape, backend=first.backend)
    pinned = save(tmp_path / "base.json", run(worse))
    head = save(tmp_path / "head.json", run(worse))
    assert compare(pinned, head, None).ok
    report = compare(pinned, head, tmp_path / "results")
    assert [j.word for j in report.judged] == ["slower"]
    assert compare(pinned, save(tmp_path / "b.json", run(first)), tmp_path / "results").judged[
        0
    ].word in ("ok", "faster")


def test_the_window_needs_comparable_nights(tmp_path):
    nights = [night(i, [cell(value=v)]) for i, v in enumerate((0.9, 1.0, 1.1))]
    (found,) = window(nights, run(cell())).cells
    assert found.value == 1.0 and found.low < 0.9 < 1.1 < found.high
    assert window(nights[:2], run(cell())) is None
    assert window(nights, run(cell(), gpu=replace(H200, name="H100"))) is None
    with pytest.raises(Refused, match="no such directory"):
        path = save(tmp_path / "x.json", run(cell()))
        compare(path, path, tmp_path / "none")

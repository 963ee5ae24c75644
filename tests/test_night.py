"""Night files: read as written, whole or not at all; anything else is named and set aside."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest
from msgspec.structs import replace
from nights import START, cell, night

from tlx_clc_plugin.nightly.night import (
    NightError,
    Runner,
    dump,
    load,
    load_all,
    write_atomically,
)


def altered(path, change):
    """The file's content after ``change`` has had its way with the parsed JSON."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_a_night_is_read_as_it_was_written(tmp_path):
    written = night(3, [cell(), cell(backend="aten_matmul")])
    path = dump(written, tmp_path)
    assert path.name == f"20260904T020000Z-{written.commit.sha[:12]}-gpu.json"
    assert load(path) == written
    assert json.loads(path.read_text())["started"] == "2026-09-04T02:00:00Z"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda n: n.update(kind="other"), "kind"),
        (lambda n: n.update(schema=0), "schema must be 1, got 0"),
        (lambda n: n.update(extra=1), "extra"),
        (lambda n: n.pop("seeds"), "seeds"),
        (lambda n: n.update(finished="2020-01-01T00:00:00Z"), "finished"),
        (lambda n: n.update(started="2026-09-01T02:00:00"), "started"),
        (lambda n: n.update(gpu=None), "gpu"),
        (lambda n: n["commit"].update(sha="main"), r"commit\.sha"),
        (lambda n: n["commit"].update(url="javascript:alert(1)"), r"commit\.url"),
        (lambda n: n["cells"][0].update(value=float("nan")), "JSON"),
        (lambda n: n["cells"][0].update(value=1e300), r"cells\[0\]\.value"),
        (lambda n: n["cells"][0].update(value="0.9"), r"cells\[0\]\.value"),
        (lambda n: n["cells"][0].update(value=None), "value must be there"),
        (lambda n: n["cells"][0].update(low=None), "low and high"),
        (lambda n: n["cells"][0].update(low=0.99), "value must lie from low to high"),
        (lambda n: n["cells"][0].update(status="great"), r"cells\[0\]\.status"),
        (lambda n: n["cells"][0].update(shape=[1, 2]), r"cells\[0\]\.shape"),
        (lambda n: n["cells"][0].update(shape=[1, 2, 0]), r"cells\[0\]\.shape"),
        (lambda n: n["cells"][0].update(id="gemm/x"), "id of a cell must be 'gemm/1024x1024x1024"),
        (lambda n: n["cells"][0].update(backend="<script>"), r"cells\[0\]\.backend"),
        (lambda n: n["cells"][0].update(status="error", value=None), "reason"),
        (lambda n: n["cells"].append(n["cells"][0]), "is there 2 times"),
    ],
)
def test_what_is_out_of_place_is_named(tmp_path, change, said):
    path = altered(dump(night(0, [cell()]), tmp_path), change)
    with pytest.raises(NightError, match=said):
        load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_no_night_at_all(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(NightError):
        load(path)


def test_an_invalid_night_is_not_written(tmp_path):
    for bad in (cell(value=float("nan"), low=None, high=None), cell(figures={"x": float("inf")})):
        with pytest.raises(NightError):
            dump(night(0, [bad]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_of_a_commit_takes_the_place_of_the_first(tmp_path):
    first = night(1, [cell()])
    second = replace(
        first,
        started=first.started + timedelta(days=1),
        finished=first.finished + timedelta(days=1),
    )
    others = [
        night(2, [cell()]),
        replace(first, runner=Runner("r", "gpu", "embedded", "1of2")),
        replace(first, gpu=None, runner=Runner("r", "cpu", "embedded")),
    ]
    for n in (first, *others, second):
        dump(n, tmp_path)
    nights, aside = load_all(tmp_path)
    assert aside == []
    assert sorted(n.file_name for n in nights) == sorted(n.file_name for n in (*others, second))


def test_a_write_that_dies_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_atomically(path, b"old")

    def die(*args):
        raise KeyboardInterrupt

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            with pytest.raises(KeyboardInterrupt):
                write_atomically(path, b"new")
        assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
        assert path.read_bytes() == b"old"


def test_bad_files_are_set_aside_with_their_reason_and_the_rest_is_read(tmp_path):
    good = [night(i, [cell()]) for i in (2, 0, 1)]
    paths = [dump(n, tmp_path) for n in good]
    (tmp_path / "a.json").write_bytes(paths[0].read_bytes()[:-40])
    (tmp_path / "b.json").write_text('{"kind": "other"}')
    (tmp_path / "c.json").write_bytes(paths[1].read_bytes())
    dump(night(9, [cell()]), tmp_path)
    nights, aside = load_all(tmp_path, now=START + timedelta(days=5))
    assert [n.commit for n in nights] == [good[i].commit for i in (1, 2, 0)]
    reasons = {a.path.name: a.reason for a in aside}
    assert len(reasons) == 4
    assert "truncated" in reasons["a.json"] and "kind" in reasons["b.json"]
    duplicates = [name for name, reason in reasons.items() if "duplicate" in reason]
    assert len(duplicates) == 1 and duplicates[0] in ("c.json", paths[1].name)
    assert "future" in reasons[night(9).file_name]

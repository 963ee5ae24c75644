"""tlx-clc dashboard on made-up nights: what the pages, index.txt and regressions.json say, compared
with what the night files hold; test_dashboard_browser.py looks at the pages in a browser."""

import copy
import json
import random
import re
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import numpy as np
import pytest
import sample_history
from hypothesis import given
from hypothesis import strategies as st

from tlx_clc_plugin import cli, dashboard
from tlx_clc_plugin.dashboard.compact import columns, flatten, script_json

SMALL = {
    "shapes": ((512, 512, 512), (4096, 4096, 4096)),
    "dtypes": ("fp16",),
    "backends": ("tlx_persistent", "tlx_clc"),
}
CELLS = [
    f"gemm/{n}x{n}x{n}/fp16/tn/{backend}/eager"
    for n in (512, 4096)
    for backend in SMALL["backends"]
]
LATE = datetime(2026, 11, 20, 2, tzinfo=timezone.utc)


@pytest.fixture
def seed():
    """A fresh one; pytest shows it if the test fails."""
    value = random.randrange(10**6)
    print("seed", value)
    return value


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site"


def healthy(count, **options):
    """Nights without anything planted or failed; all on one toolchain, every cell ok."""
    nights = []
    for index in range(count):
        night = sample_history.night(index, **SMALL | options)
        night["gpu"]["driver"], night["versions"]["fbtriton"] = "580.95.05", "3.7.4"
        for cell in night["cells"]:
            if cell["status"] != "ok":
                set_value(night, cell, 0.9)
            cell["config"] = "128x256x64"
        nights.append(night)
    return nights


def set_value(night, cell, value, noise=0.01):
    """Give a cell of the night this value, as measured and found ok."""
    cell |= {"status": "ok", "reason": "", "value": value}
    cell |= {"low": value * (1 - noise), "high": value * (1 + noise)}
    night["verdict"]["cells"][cell["id"]] = {"word": "ok", "why": ""}


def fail(night, cell, status, reason):
    cell |= {"status": status, "reason": reason, "value": None, "low": None, "high": None}
    night["verdict"]["cells"][cell["id"]] = {"word": status, "why": reason}


class Page(HTMLParser):
    """Rows of tables by the table's class, scripts, links, ids' texts, and all of the text."""

    def __init__(self, path):
        super().__init__()
        self.tables, self.scripts, self.links, self.ids, self.data = {}, [], [], {}, ""
        self.text, self._table, self._open = "", None, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in ("meta", "link", "input", "br"):
            self._open.append((tag, attributes.get("id")))
        if tag == "table":
            self._table = self.tables.setdefault(attributes["class"], [])
        elif tag == "tr":
            self._table.append({"class": attributes.get("class") or "", "cells": []})
        elif tag in ("td", "th"):
            self._table[-1]["cells"].append({"class": attributes.get("class") or "", "text": ""})
        elif tag == "a":
            self.links.append(attributes["href"])
        elif tag == "script":
            self.scripts.append(attributes)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag == "table":
            self._table = None

    def handle_data(self, data):
        tags = [tag for tag, _ in self._open]
        if "script" in tags:
            self.data += data
            return
        self.text += data
        for _, name in self._open:
            if name:
                self.ids[name] = self.ids.get(name, "") + data
        if self._table and {"td", "th"} & set(tags):
            self._table[-1]["cells"][-1]["text"] += data

    def rows(self, table):
        """Texts of the body's cells, white space made single."""
        return [
            [" ".join(cell["text"].split()) for cell in row["cells"]]
            for row in self.tables.get(table, [])[1:]
        ]


def build(results, site, nights, *, now=LATE, status=0, notes=None):
    """Write the nights, build the site; returns its front page, text and JSON."""
    sample_history.write(results, nights)
    assert dashboard.run(results, site, notes=notes, now=now) == status
    facts = json.loads((site / "regressions.json").read_text())
    return Page(site / "index.html"), (site / "index.txt").read_text(), facts


def cell_page(site, facts, cell):
    pages = list((site / "cells").glob(re.sub("/", "-", cell) + "-*.html"))
    assert len(pages) == 1
    return Page(pages[0])


def test_today_has_every_cell_with_its_figures(results, site, seed):
    nights = healthy(30, seed=seed)
    page, text, facts = build(results, site, nights)
    rows = page.rows("today")
    assert len(rows) == len(nights[-1]["cells"]) == len(facts["devices"][0]["cells"])
    for row, cell, fact in zip(
        rows, nights[-1]["cells"], facts["devices"][0]["cells"], strict=True
    ):
        before = [
            other["value"]
            for n in nights[-21:-1]
            for other in n["cells"]
            if other["id"] == cell["id"]
        ]
        first, middle, third = np.percentile(before, [25, 50, 75])
        low, high = first - 1.5 * (third - first), third + 1.5 * (third - first)
        change = f"{cell['value'] / middle - 1:+.1%}"
        assert row[0] == "×".join(map(str, cell["shape"])) and row[2] == cell["backend"]
        assert row[3].lstrip("▲▼ ") == (f"{cell['value']:.3f} {cell['low']:.3f}–{cell['high']:.3f}")
        if change not in ("-0.0%", "+0.0%"):
            assert row[4] == change.replace("-", "−").replace("%", " %")
        assert row[5] == f"{low:.3f}–{high:.3f}"
        assert float(row[7].split()[0].replace(",", "")) == pytest.approx(
            cell["figures"]["cublas_us"], rel=1e-3
        )
        standing = "better" if cell["low"] > high else "worse" if cell["high"] < low else ""
        assert fact["standing"] == standing and fact["value"] == cell["value"]
        assert fact["band"] == pytest.approx({"low": low, "middle": middle, "high": high})
        line = next(line for line in text.splitlines() if line.strip().startswith(cell["id"]))
        assert f" {cell['value']:.3f} " in line and f" {low:.3f}–{high:.3f} " in line


@pytest.mark.parametrize(("factor", "standing"), [(0.9, "worse"), (1.1, "better"), (1, "")])
def test_colour_only_outside_the_band(results, site, seed, factor, standing):
    nights = healthy(30, seed=seed)
    for index, night in enumerate(nights):
        for number, cell in enumerate(night["cells"]):
            set_value(night, cell, 0.9 * (1 + 0.01 * ((index + number) % 5 - 2)))
    victim = random.Random(seed).randrange(len(CELLS))
    set_value(nights[-1], nights[-1]["cells"][victim], 0.9 * factor)
    page, _, facts = build(results, site, nights)
    classes = [row["cells"][3]["class"] for row in page.tables["today"][1:]]
    expected = ["number"] * len(CELLS)
    expected[victim] = f"number {standing}".strip()
    assert [text.strip() for text in classes] == expected
    assert [cell["standing"] for cell in facts["devices"][0]["cells"]].count("") == len(CELLS) - (
        standing != ""
    )
    # The same value with noise that reaches into the band is no cause for colour.
    set_value(nights[-1], nights[-1]["cells"][victim], 0.9 * factor, noise=0.2)
    page, _, _ = build(results, site, nights)
    assert {row["cells"][3]["class"].strip() for row in page.tables["today"][1:]} == {"number"}


def test_lower_is_better_for_counts(results, site):
    nights = healthy(12)
    for index, night in enumerate(nights):
        for cell in night["cells"]:
            cell |= {"metric": "instructions", "better": "lower", "figures": {}}
            value = 120_000 if index == 11 and cell["id"] == CELLS[0] else 100_000
            cell |= {"value": value, "low": value, "high": value}
    page, text, facts = build(results, site, nights)
    row = page.tables["today"][1]["cells"]
    assert row[3]["class"] == "number worse" and "120,000" in row[3]["text"]
    assert row[4]["text"] == "+20.0 %" and "instructions" in row[1]["text"]
    assert [cell["standing"] for cell in facts["devices"][0]["cells"]] == ["worse", "", "", ""]
    assert "worse than the band" in text


def test_words_are_told_with_reasons(results, site, seed):
    nights = healthy(8, seed=seed)
    today = nights[-1]
    fail(today, today["cells"][0], "wrong", "element (3, 5) is off")
    fail(today, today["cells"][1], "skipped", "needs sm_100")
    today["verdict"]["cells"][CELLS[2]] = {"word": "slower", "why": "-6 % against the baseline"}
    del today["cells"][3]
    page, text, facts = build(results, site, nights)
    words = [row[9] for row in page.rows("today")]
    assert words[:3] == [
        "wrong element (3, 5) is off",
        "skipped needs sm_100",
        "slower -6 % against the baseline",
    ]
    assert words[3].startswith("missing not in today's results; last there on 2026-10-07")
    assert [row["class"] for row in page.tables["today"][1:]] == [
        "outstanding",
        "",
        "outstanding",
        "outstanding",
    ]
    assert [cell["word"] for cell in facts["devices"][0]["cells"]] == [
        "wrong",
        "skipped",
        "slower",
        "missing",
    ]
    assert all(word in text for word in ("element (3, 5) is off", "needs sm_100", "missing"))
    assert "n/a" in page.rows("today")[0][3] and "n/a" in page.rows("today")[3][3]


def test_a_cell_gone_for_long_is_retired(results, site):
    nights = healthy(40)
    for night in nights[5:]:
        del night["cells"][3]
    page, _, facts = build(results, site, nights)
    device = facts["devices"][0]
    assert device["retired"] == [CELLS[3]] and len(page.rows("today")) == 3
    assert "1 no longer measured" in page.text
    assert cell_page(site, facts, CELLS[3]).rows("nights")[0][-1] == "missing"


def test_regressions_name_the_first_bad_commit_and_the_change(results, site, seed):
    victim = CELLS[random.Random(seed).randrange(len(CELLS))]
    nights = healthy(40, seed=seed, loss=(25, victim, 0.08))
    page, text, facts = build(results, site, nights)
    (loss,) = facts["devices"][0]["regressions"]
    bad, good = nights[25]["commit"]["sha"], nights[24]["commit"]["sha"]
    assert (loss["cell"], loss["first_bad_sha"], loss["last_good_sha"]) == (victim, bad, good)
    assert loss["change"] == pytest.approx(-0.08, abs=0.02) and loss["recovered"] is None
    url = f"https://github.com/example/tlx_clc_plugin/compare/{good}...{bad}"
    assert loss["change_url"] == url and url in text and url in page.links
    ((cell, change, levels, since, commit, state),) = page.rows("regressions")
    assert (cell, since, commit, state) == (victim, "2026-10-26", bad[:12], "stands")
    assert levels == f"{loss['before']:.3f} → {loss['after']:.3f}" and change.endswith("step")
    assert loss["page"] in page.links
    shown = cell_page(site, facts, victim)
    assert url in shown.links and f"first at {bad[:12]}" in shown.text
    others = [cell for cell in CELLS if cell != victim]
    assert not any("first at" in cell_page(site, facts, cell).text for cell in others)


def test_no_regression_is_said(results, site):
    page, text, facts = build(results, site, healthy(10))
    assert facts["devices"][0]["regressions"] == []
    assert "None in 10 nights" in page.text and "No regressions" in text


def test_changes_of_the_surroundings_and_of_configs_are_events(results, site):
    nights = healthy(20)
    for night in nights[8:]:
        night["gpu"]["driver"] = "590.12.01"
        night["cells"][1]["config"] = "256x128x64"
    for night in nights[12:]:
        night["versions"]["torch"], night["runner"]["name"] = "2.14.0", "b200-2"
    build(results, site, nights)
    changed, other = (
        " ".join(cell_page(site, None, cell).text.split()) for cell in (CELLS[1], CELLS[0])
    )
    for text in (changed, other):
        assert "2026-10-09 driver 580.95.05 → 590.12.01" in text
        assert "2026-10-13 torch 2.13.0 → 2.14.0" in text
        assert "2026-10-13 runner b200-1 → b200-2" in text
    assert "2026-10-09 128x256x64 → 256x128x64" in changed
    assert "256x128x64" not in other


def test_a_band_is_of_nights_with_todays_toolchain(results, site):
    nights = healthy(20)
    for night in nights[17:]:
        night["gpu"]["driver"] = "590.12.01"
    page, _, _ = build(results, site, nights)
    assert {row[5] for row in page.rows("today")} == {"too few nights"}
    assert {row[4] for row in page.rows("today")} == {"n/a"}


def test_notes_stand_on_the_pages_they_concern(results, site, capsys):
    results.mkdir()
    (results / "notes.txt").write_text(
        "# notes\n\n2026-10-03 * runner moved\n"
        "2026-10-05  gemm/512x*/tlx_clc/*  known: <b>wanted</b>\n10-05 * no year\n2026-10-06 *\n"
    )
    page, text, facts = build(results, site, healthy(8), status=1)
    complaints = capsys.readouterr().err.splitlines()
    assert len(complaints) == 2 and "line 5" in complaints[0] and "line 6" in complaints[1]
    assert "known: <b>wanted</b>" in page.text and "2026-10-03 *: runner moved" in text
    assert [note["cells"] for note in facts["notes"]] == ["*", "gemm/512x*/tlx_clc/*"]
    assert [entry["file"] for entry in facts["set_aside"]] == ["notes.txt"] * 2
    for cell in CELLS:
        shown = cell_page(site, facts, cell).text
        assert "runner moved" in shown and ("known:" in shown) == (cell == CELLS[1])


def test_a_notes_file_that_was_named_must_be_there(results, site, tmp_path, capsys):
    sample_history.write(results, healthy(3))
    assert dashboard.run(results, site, notes=tmp_path / "nothing.txt", now=LATE) == 2
    assert "nothing.txt" in capsys.readouterr().err and not site.exists()


def test_cell_page(results, site, seed):
    nights = healthy(35, seed=seed)
    _, _, facts = build(results, site, nights)
    for cell in nights[-1]["cells"]:
        page = cell_page(site, facts, cell["id"])
        assert page.ids["repro"] == cell["repro"]
        raw = json.loads(page.ids["raw"])
        assert raw == cell
        listed = page.rows("nights")
        assert [row[0] for row in listed] == [
            f"{night['started'][:10]} synthetic" for night in reversed(nights[-30:])
        ]
        values = [
            c["value"] for n in reversed(nights[-30:]) for c in n["cells"] if c["id"] == raw["id"]
        ]
        assert [row[2] for row in listed] == [f"{value:.3f}" for value in values]
        assert "../index.html" in page.links and nights[-1]["commit"]["url"] in page.links


@pytest.mark.parametrize(("hours", "stale"), [(1, False), (35, False), (37, True), (24 * 9, True)])
def test_staleness(results, site, hours, stale):
    nights = healthy(3)
    now = datetime.fromisoformat(nights[-1]["started"].replace("Z", "+00:00"))
    page, text, facts = build(results, site, nights, now=now + timedelta(hours=hours))
    assert facts["devices"][0]["stale"] is stale and ("STALE" in text) is stale
    assert ("banner-stale hidden" in (site / "index.html").read_text()) is not stale


def test_run_header_and_failed_steps(results, site):
    nights = healthy(3)
    nights[-1]["steps"][1] |= {"status": "failed", "reason": "2 failed, 10 passed"}
    page, text, _ = build(results, site, nights)
    words = " ".join(page.text.split())
    for words_of_header in (
        "Step tests failed. 2 failed, 10 passed",
        "driver 580.95.05, power limit 1000 W",
        "fbtriton 3.7.4, torch 2.13.0, CUDA 13.0, Python 3.11.9",
        "b200-1, lane gpu, harness tritonbench 13ecc78",
        "inputs 1002",
    ):
        assert words_of_header in words
    clocks = nights[-1]["conditions"]["sm_clock_mhz"]
    assert f"{clocks['min']} – {clocks['median']} – {clocks['max']} MHz" in words
    assert "step tests failed: 2 failed, 10 passed" in text


def test_synthetic_nights_are_marked_and_measured_ones_not(results, site):
    nights = healthy(4)
    nights[0]["synthetic"] = False
    page, text, facts = build(results, site, nights)
    assert "3 of the 4 nights on NVIDIA B200, 148 SMs are made up" in page.text
    assert "SYNTHETIC: 3 of 4" in text and facts["devices"][0]["synthetic_nights"] == 3
    listed = cell_page(site, facts, CELLS[0]).rows("nights")
    assert ["synthetic" in row[0] for row in listed] == [True, True, True, False]
    for night in nights:
        night["synthetic"] = False
    for made in (build(results, site, nights)[0], cell_page(site, facts, CELLS[0])):
        assert "made up" not in made.text and "ynthetic" not in made.text


def test_shards_are_one_night_and_other_gpus_another_history(results, site):
    whole = healthy(6)
    nights = []
    for night in whole[:-1]:
        nights.append(night)
    for shard, part in (("0", slice(0, 2)), ("1", slice(2, 4))):
        night = copy.deepcopy(whole[-1])
        night["cells"] = night["cells"][part]
        kept = [cell["id"] for cell in night["cells"]]
        night["verdict"]["cells"] = {key: night["verdict"]["cells"][key] for key in kept}
        night["runner"]["shard"] = shard
        nights.append(night)
    results.mkdir()
    for number, night in enumerate(nights):
        (results / f"{number}.json").write_text(json.dumps(night))
    other = healthy(3, seed=1)
    for night in other:
        night["gpu"] |= {"name": "NVIDIA H200", "sms": 132, "capability": "9.0"}
    page, _, facts = build(results, site, other)
    assert [(device["name"], device["nights"]) for device in facts["devices"]] == [
        ("NVIDIA B200, 148 SMs", 6),
        ("NVIDIA H200, 132 SMs", 3),
    ]
    assert [cell["id"] for cell in facts["devices"][0]["cells"]] == CELLS
    assert {cell["word"] for cell in facts["devices"][0]["cells"]} == {"ok"}
    assert len(list((site / "cells").glob("*.html"))) == 8


def test_persistent_against_dynamic(results, site):
    nights = healthy(2)
    cells = nights[-1]["cells"]
    for cell, value in zip(cells, (0.90, 0.95, 0.90, 0.905), strict=True):
        set_value(nights[-1], cell, value)
    page, text, facts = build(results, site, nights)
    assert [(pair["dynamic"], pair["clear"]) for pair in facts["devices"][0]["pairs"]] == [
        (CELLS[1], True),
        (CELLS[3], False),
    ]
    differences = [pair["difference"] for pair in facts["devices"][0]["pairs"]]
    assert differences == pytest.approx([0.95 / 0.90 - 1, 0.905 / 0.90 - 1])
    assert [row[4] for row in page.rows("pairs")] == ["▲ +5.6 %", "+0.6 % within noise"]
    assert f"{CELLS[3]}: +0.6 % (within noise)" in text


def test_only_a_dashboard_is_replaced(results, site, capsys):
    sample_history.write(results, healthy(3))
    site.mkdir()
    (site / "thesis.txt").write_text("years of work")
    argv = ["dashboard", str(results), "-o", str(site)]
    assert cli.main(argv) == 2 and "no dashboard" in capsys.readouterr().err
    assert [path.name for path in site.iterdir()] == ["thesis.txt"]
    (site / "thesis.txt").unlink()
    assert cli.main(argv) == 0
    (site / "cells" / "of-old.html").write_text("")
    assert cli.main(argv) == 0 and not (site / "cells" / "of-old.html").exists()
    assert sorted(path.name for path in site.parent.iterdir()) == ["results", "site"]


def test_a_build_that_fails_leaves_the_old_site(results, site, monkeypatch):
    sample_history.write(results, healthy(3))
    assert dashboard.run(results, site, now=LATE) == 0
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("tlx_clc_plugin.dashboard.render._front_data", full)
    assert dashboard.run(results, site, now=LATE) == 2
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in site.parent.iterdir()) == ["results", "site"]


@pytest.mark.parametrize("made", [True, False])
def test_no_night_is_an_error(results, site, capsys, made):
    if made:
        results.mkdir()
    assert dashboard.run(results, site) == 2
    assert str(results) in capsys.readouterr().err and not site.exists()


letters = st.text('<>&/!-a"\\é\u2028', max_size=8)
plain = st.none() | st.booleans() | st.integers(-5, 5) | letters
record = st.dictionaries(
    st.sampled_from("abc"),
    plain | st.lists(plain, max_size=2) | st.dictionaries(st.sampled_from("xy"), plain, max_size=2),
    max_size=3,
)


@given(st.lists(record, min_size=1, max_size=8))
def test_columns_hold_the_records(records):
    flat = [flatten(record) for record in records]
    found = columns(records)
    assert set(found) == {key for record in flat for key in record}
    for key, column in found.items():
        (form,) = set(column) & {"all", "of", "each"}
        if form == "all":
            values = [column["all"]] * len(records)
        elif form == "of":
            values = [column["of"][index] for index in column["at"]]
        else:
            values = column["each"]
        assert json.dumps(values) == json.dumps([record.get(key) for record in flat])


@given(letters)
def test_json_in_a_script_cannot_end_it(text):
    embedded = script_json({text: text + "</script><!--"})
    assert not set("<>&") & set(embedded) and json.loads(embedded) == {text: text + "</script><!--"}

"""Result files that are no nights, or hostile ones: named and set aside, the rest is shown."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
import sample_history
from test_dashboard import CELLS, LATE, Page, healthy

from tlx_clc_plugin import dashboard

# Each makes a bad file of the text of a good one; and a word of the reason that must be told.
BAD = {
    "truncated": (lambda text: text[: random.randrange(1, len(text) - 1)], "truncated"),
    "empty": (lambda text: "", "truncated"),
    "binary": (lambda text: b"\x89PNG\r\n\xff\xfe", "not JSON"),
    "nested": (lambda text: "[" * 100_000, "not JSON"),
    "foreign": (lambda text: '{"benchmarks": [], "version": "5.3.1"}', "kind"),
    "a-list": (lambda text: "[1, 2]", "kind"),
    "older": (lambda text: text.replace('"schema": 1', '"schema": 0'), "schema"),
    "newer": (lambda text: text.replace('"schema": 1', '"schema": 2'), "schema"),
    "nan": (lambda text: text.replace('"synthetic": true', '"synthetic": NaN'), "not JSON"),
    "nan-value": (lambda text: changed(text, value=float("nan")), "not JSON"),
    "infinite": (lambda text: changed(text, high=float("inf")), "not JSON"),
    "huge": (lambda text: changed(text, value=1e300), "value"),
    "huge-integer": (lambda text: changed(text, value=10**400), ""),
    "negative": (lambda text: changed(text, value=-0.5), "value"),
    "value-in-words": (lambda text: changed(text, value="fast"), "value"),
    "half-a-character": (lambda text: text.replace("Change number", "\\ud800"), "JSON"),
    "no-config": (lambda text: changed(text, config=None), "config"),
    "twice-a-cell": (lambda text: twice(text), "2 times"),
    "from-the-future": (lambda text: text.replace("2026-10-", "2126-10-"), "future"),
    "ended-before": (
        lambda text: text.replace('"finished": "2026', '"finished": "2025'),
        "finished",
    ),
    "no-date": (lambda text: text.replace('"started": "2026-10', '"started": "2026-31'), "started"),
    "script-in-a-name": (
        lambda text: text.replace('"tlx_clc"', '"<script>alert(1)</script>"'),
        "backend",
    ),
    "script-in-an-address": (
        lambda text: text.replace("https://github.com/", "javascript:alert(1)//"),
        "url",
    ),
    "path-in-a-name": (lambda text: text.replace("/tn/tlx_clc/", "/../../tlx_clc/"), "cell"),
}


def changed(text, **fields):
    """With these fields of one of its cells."""
    night = json.loads(text)
    random.choice(night["cells"]).update(fields)
    return json.dumps(night)


def twice(text):
    night = json.loads(text)
    night["cells"].append(night["cells"][0])
    return json.dumps(night)


def build(results, site):
    status = dashboard.run(results, site, now=LATE)
    facts = json.loads((site / "regressions.json").read_text())
    return status, facts, (site / "index.txt").read_text(), Page(site / "index.html")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder of nights that are all right, and what the site says of them."""
    folder = tmp_path_factory.mktemp("good")
    sample_history.write(folder / "results", healthy(8))
    return folder / "results", build(folder / "results", folder / "site")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_and_the_rest_shown(name, good, tmp_path, capsys):
    folder, (_, facts, _, page) = good
    results = Path(shutil.copytree(folder, tmp_path / "results"))
    make, reason = BAD[name]
    (extra,) = sample_history.write(tmp_path, healthy(12)[-1:])
    content = make(extra.read_text())
    assert content != extra.read_text()
    content = content if isinstance(content, bytes) else content.encode()
    (results / f"{name}<b>&amp;.json").write_bytes(content)

    status, bad_facts, text, bad_page = build(results, tmp_path / "site")
    assert status == 1
    (line,) = capsys.readouterr().err.splitlines()
    ((file, why),) = [(entry["file"], entry["why"]) for entry in bad_facts["set_aside"]]
    assert (
        file == f"{name}<b>&amp;.json"
        and reason in why
        and line.startswith(f"tlx-clc dashboard: {file}")
    )
    assert (
        f"  {file}: " in text and file in bad_page.ids["aside"] and reason in bad_page.ids["aside"]
    )
    assert bad_facts["devices"] == facts["devices"]
    assert bad_page.tables == page.tables and not facts["set_aside"]


def test_a_duplicate_is_named_and_shown_once(good, tmp_path, capsys):
    folder, (_, facts, _, page) = good
    results = Path(shutil.copytree(folder, tmp_path / "results"))
    last = max(results.iterdir())
    shutil.copy(last, results / f"x-{last.name}")
    status, bad_facts, _, bad_page = build(results, tmp_path / "site")
    assert status == 1 and "duplicate" in capsys.readouterr().err
    assert "duplicate" in bad_page.ids["aside"]
    assert bad_facts["devices"] == facts["devices"] and bad_page.tables == page.tables


def test_a_file_name_need_not_be_text(good, tmp_path, capsys):
    results = Path(shutil.copytree(good[0], tmp_path / "results"))
    (results / os.fsdecode(b"caf\xe9.json")).write_text("{}")
    status, facts, _, page = build(results, tmp_path / "site")
    assert status == 1 and "caf\ufffd.json" in capsys.readouterr().err
    assert facts["set_aside"][0]["file"] == "caf\ufffd.json" and "caf\ufffd" in page.ids["aside"]


ATTACKS = (
    "</script><script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "\x1b[31mred\x1b[0m\r\n",
    "javascript:alert(1)",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_texts_are_shown_as_texts(attack, tmp_path):
    night = healthy(1)[0]
    cell = night["cells"][0]
    night["commit"]["subject"] = night["runner"]["name"] = night["runner"]["harness"] = attack
    night["versions"]["torch"] = night["gpu"]["name"] = attack
    night["steps"][0] |= {"status": "failed", "reason": attack, "command": attack}
    cell["config"] = cell["repro"] = attack
    night["cells"][1] |= {"status": "error", "value": None, "low": None, "high": None}
    night["cells"][1]["reason"] = attack
    night["verdict"]["cells"][cell["id"]] = {"word": "slower", "why": attack}
    sample_history.write(tmp_path / "results", [night])
    (tmp_path / "results" / "notes.txt").write_text(f"2026-10-01 * {attack.strip()}\n", newline="")
    site = tmp_path / "site"
    dashboard.run(tmp_path / "results", site, now=LATE)

    normal = tmp_path / "normal"
    sample_history.write(tmp_path / "good", healthy(1))
    dashboard.run(tmp_path / "good", normal, now=LATE)
    expected = Page(normal / "index.html")
    front = Page(site / "index.html")
    assert (
        front.scripts == expected.scripts
        and attack.strip() in front.text.replace("\n", "\r\n") + front.text
    )
    pages = list((site / "cells").glob("*.html"))
    assert len(pages) == len(CELLS)
    for path in pages:
        page = Page(path)  # which refuses handlers of events and styles
        assert [script["src"] for script in page.scripts if "src" in script] == [
            "../static/uplot/uPlot.iife.min.js",
            "../static/page.js",
            "nights-0.js",
            "../static/cell.js",
        ]
        assert not [link for link in page.links if link.startswith("javascript:")]
    repro = [json.loads(page.ids["raw"])["repro"] for page in map(Page, pages)]
    assert attack in repro
    assert "<" not in (site / "cells" / "nights-0.js").read_text()
    assert "\x1b" not in (site / "index.txt").read_text()

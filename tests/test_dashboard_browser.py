"""The dashboard's pages as a person uses them, in Chromium; skipped where there is none."""

import json
import random
from datetime import datetime, timedelta, timezone

import pytest
import sample_history
from browser import chromium, look
from test_dashboard import healthy
from test_dashboard_bad_files import ATTACKS

from tlx_clc_plugin import dashboard

VICTIM = "gemm/4096x4096x4096/fp16/tn/tlx_clc/eager"


@pytest.fixture(scope="module")
def driver():
    with chromium() as opened:
        yield opened


@pytest.fixture(autouse=True)
def quiet_console(driver):
    """No page may say a word in the console: no error, no refusal by its own policy."""
    driver.get_log("browser")
    yield
    assert driver.get_log("browser") == []


@pytest.fixture(scope="module")
def nights():
    """40 nights of all 60 cells, the last with a cell that failed and one that lost."""
    found = list(sample_history.history(40, loss=(20, VICTIM, 0.06)))
    last = found[-1]["cells"]
    last[7] |= {"status": "wrong", "reason": "off by one", "value": None, "low": None, "high": None}
    last[10] |= {"value": 0.5, "low": 0.49, "high": 0.51}
    return found


@pytest.fixture(scope="module")
def site(nights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboard")
    sample_history.write(folder / "results", nights)
    (folder / "results" / "notes.txt").write_text("2026-10-15 * runner moved\n")
    now = datetime(2026, 11, 10, tzinfo=timezone.utc)
    assert dashboard.run(folder / "results", folder / "site", now=now) == 0
    return folder / "site"


@pytest.fixture
def front(driver, site):
    look(driver, 1400, 1000)
    driver.get((site / "index.html").as_uri())
    return driver


def page_of(site, cell):
    facts = json.loads((site / "regressions.json").read_text())
    ids = [fact["id"] for fact in facts["devices"][0]["cells"]]
    hrefs = [
        line.split('href="')[1].split('"')[0]
        for line in (site / "index.html").read_text().splitlines()
        if 'class="open"' in line
    ]
    return site / dict(zip(ids, hrefs, strict=True))[cell]


@pytest.fixture
def cell(driver, site):
    look(driver, 1200, 1000)
    driver.get(page_of(site, VICTIM).as_uri())
    return driver


def find(driver, selector):
    return driver.find_element("css selector", selector)


def shown(driver):
    """Texts of the rows that are seen, from the top."""
    return [
        tuple(row)
        for row in driver.execute_script(
            "return [...document.querySelectorAll('table.today tbody tr')]"
            ".filter((row) => row.getClientRects().length)"
            ".map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
    ]


def press(driver, *keys):
    driver.switch_to.active_element.send_keys(*keys)


def key(name):
    from selenium.webdriver.common.keys import Keys

    return getattr(Keys, name)


def number(text):
    """The figure that a table's cell starts with; None for n/a."""
    return None if "n/a" in text else float(text.lstrip("▲▼ ").split()[0].replace(",", ""))


@pytest.mark.parametrize(
    ("name", "column", "meaning"),
    [("Value", 3, number), ("cuBLAS", 7, number), ("Backend", 2, str)],
)
def test_sorting(front, name, column, meaning):
    button = find(front, f"th.col-{name.lower()} button")
    before = shown(front)
    for direction in ("ascending", "descending", "ascending"):
        button.click()
        assert find(front, f"th.col-{name.lower()}").get_attribute("aria-sort") == direction
        rows = shown(front)
        found = [meaning(row[column]) for row in rows]
        known = [value for value in found if value is not None]
        assert known == sorted(known, reverse=direction == "descending")
        # What has no value comes last in either direction.
        assert found[len(known) :] == [None] * (len(found) - len(known))
        assert sorted(rows) == sorted(before)
    assert len(front.find_elements("css selector", "table.today th[aria-sort]")) == 1


def test_filtering_by_words(front):
    everything = shown(front)
    shape, _, backend, *_ = random.choice(everything)
    find(front, "#filter").send_keys(f"{shape.replace('×', 'x')} {backend.upper()}")
    expected = [row for row in everything if row[0] == shape and row[2] == backend]
    assert shown(front) == expected and 0 < len(expected) < len(everything)
    assert find(front, "#shown").text == f"{len(expected)} of {len(everything)} cells"
    press(front, key("ESCAPE"))
    assert shown(front) == everything


def test_only_what_stands_out(front, nights):
    find(front, "#outstanding").click()
    rows = shown(front)
    cells = [nights[-1]["cells"][7], nights[-1]["cells"][10]]
    expected = {("×".join(map(str, cell["shape"])), cell["backend"]) for cell in cells}
    assert expected <= {(row[0], row[2]) for row in rows} and len(rows) < 20
    find(front, "#outstanding").click()
    assert len(shown(front)) == 60


def test_by_keyboard_alone(front, site):
    press(front, "/")
    assert front.switch_to.active_element == find(front, "#filter")
    press(front, "4096x4096x4096 fp16 tlx_clc")
    assert len(shown(front)) == 1
    press(front, key("ARROW_DOWN"))
    press(front, key("ENTER"))
    assert front.current_url == page_of(site, VICTIM).as_uri()
    find(front, "body").send_keys(key("ESCAPE"))
    assert front.current_url == (site / "index.html").as_uri()


def test_arrows_walk_through_the_cells_that_are_seen(front):
    find(front, "#filter").send_keys("512x512x512 fp16")
    names = []
    for _ in range(3):
        press(front, key("ARROW_DOWN"))
        names.append(front.switch_to.active_element.get_attribute("title"))
    assert names == [
        f"gemm/512x512x512/fp16/tn/{backend}/eager" for backend in sample_history.BACKENDS
    ]
    press(front, key("ARROW_UP"))
    assert front.switch_to.active_element.get_attribute("title") == names[1]


def test_every_cell_has_its_sparklines_once_in_sight(front):
    for row in front.find_elements("css selector", "table.today tbody tr")[::10]:
        front.execute_script("arguments[0].scrollIntoView({block: 'center'})", row)
        look(front, 1400, 1000)
        for canvas in row.find_elements("css selector", ".spark canvas"):
            assert painted(front, canvas) > 1
        assert len(row.find_elements("css selector", ".spark canvas")) == 2


def painted(driver, canvas):
    """How many colours a canvas has."""
    return driver.execute_script(
        "const {width, height} = arguments[0];"
        "const copy = new OffscreenCanvas(width, height);"
        "const context = copy.getContext('2d', {willReadFrequently: true});"
        "context.drawImage(arguments[0], 0, 0);"
        "const {data} = context.getImageData(0, 0, width, height);"
        "return new Set(new Uint32Array(data.buffer)).size",
        canvas,
    )


def test_comparison_over_the_shapes(front):
    from selenium.webdriver.support.select import Select

    select = Select(find(front, "select.problem"))
    names = [option.text for option in select.options]
    assert names == ["fp16, tn, eager, ratio to cuBLAS", "bf16, tn, eager, ratio to cuBLAS"]
    legend = front.find_elements("css selector", ".compare .legend li")
    assert [item.text[1:] for item in legend] == list(sample_history.BACKENDS)
    pictures = []
    for name in names:
        select.select_by_visible_text(name)
        canvas = find(front, ".compare canvas")
        assert painted(front, canvas) > 3
        pictures.append(front.execute_script("return arguments[0].toDataURL()", canvas))
    assert pictures[0] != pictures[1]


def test_opening_a_cell(front, site):
    link = find(front, f'a.open[title="{VICTIM}"]')
    front.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    assert front.current_url == page_of(site, VICTIM).as_uri()
    for chart in ("value", "cublas"):
        assert painted(front, find(front, f"#{chart} canvas")) > 3
    find(front, "#back").click()
    assert front.current_url == (site / "index.html").as_uri()


def test_copying_the_command(cell, nights):
    (expected,) = {c["repro"] for n in nights for c in n["cells"] if c["id"] == VICTIM}
    find(cell, "#copy").click()
    cell.execute_async_script("setTimeout(arguments[0], 100)")
    assert find(cell, "#copied").text == "copied"
    cell.execute_script(
        "document.body.append(Object.assign(document.createElement('textarea'), {id: 'paste'}))"
    )
    find(cell, "#paste").send_keys(key("CONTROL") + "v")
    assert find(cell, "#paste").get_property("value") == expected


def test_copying_where_the_clipboard_is_refused(cell):
    cell.execute_script(
        "const writeText = () => Promise.reject();"
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText}})"
    )
    find(cell, "#copy").click()
    cell.execute_async_script("setTimeout(arguments[0], 100)")
    assert find(cell, "#copied").text == "selected: press Ctrl+C"
    selected = cell.execute_script("return getSelection().toString()")
    assert selected.strip() == find(cell, "#repro").text


def test_stepping_through_the_nights(cell, nights):
    for back in range(3):
        night = nights[-1 - back]
        text = find(cell, "#night").text
        assert night["started"][:10] in text and night["commit"]["sha"][:12] in text
        link = find(cell, "#night a").get_attribute("href")
        assert link == night["commit"]["url"]
        raw = json.loads(cell.execute_script("return document.getElementById('raw').textContent"))
        assert raw == next(c for c in night["cells"] if c["id"] == VICTIM)
        find(cell, "body").send_keys(key("ARROW_LEFT"))
    find(cell, "body").send_keys(*[key("ARROW_RIGHT")] * 50)
    assert nights[-1]["started"][:10] in find(cell, "#night").text


@pytest.mark.parametrize("number", [3, 7, 25])
def test_records_come_out_of_the_columns_unchanged(driver, site, nights, number):
    identity = nights[-1]["cells"][number]["id"]
    driver.get(page_of(site, identity).as_uri())
    records = driver.execute_script("return started.map((_, index) => raw(index))")
    assert records == [c for n in nights for c in n["cells"] if c["id"] == identity]


def test_events_are_drawn_and_listed(cell):
    kinds = [mark.text for mark in cell.find_elements("css selector", ".events .mark")]
    assert (
        kinds == ["toolchain", "regression", "note"]
        and "runner moved" in find(cell, ".events").text
    )
    with_events = painted(cell, find(cell, "#value canvas"))
    cell.execute_script("DATA.events.length = 0; charts.forEach((chart) => chart.redraw())")
    cell.execute_async_script("requestAnimationFrame(arguments[0])")
    assert painted(cell, find(cell, "#value canvas")) < with_events


@pytest.mark.parametrize("path", ["index", "cell"])
@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_nothing_runs_out_of_the_window(driver, site, path, width):
    where = site / "index.html" if path == "index" else page_of(site, VICTIM)
    look(driver, width, 800)
    driver.get(where.as_uri())
    over = driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert over == 0


def luminance(colour):
    """Relative luminance of "rgb(r, g, b)", by WCAG 2."""
    channels = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_texts_can_be_read_light_and_dark(front, dark):
    look(front, 1400, 1000, dark=dark)
    colours = front.execute_script(
        "const probe = document.body.appendChild(document.createElement('i'));"
        "return arguments[0].map((name) => {"
        "  probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; })",
        ["paper", "raised", "warn", "bad", "ink", "muted", "link", "better", "worse"],
    )
    grounds, texts = colours[:4], colours[4:]
    assert (luminance(grounds[0]) < 0.05) is dark
    for ground in grounds[:2]:
        for text in texts:
            light, low = sorted((luminance(ground), luminance(text)), reverse=True)[:2]
            assert (light + 0.05) / (low + 0.05) >= 4.5, (ground, text)
    for ground in grounds[2:]:
        light, low = sorted((luminance(ground), luminance(texts[0])), reverse=True)
        assert (light + 0.05) / (low + 0.05) >= 4.5, ground


def test_charts_follow_the_change_to_dark(cell):
    canvas = "return document.querySelector('#value canvas').toDataURL()"
    light = cell.execute_script(canvas)
    look(cell, 1200, 1000, dark=True)
    assert cell.execute_script(canvas) != light
    look(cell, 1200, 1000)
    assert cell.execute_script(canvas) == light


@pytest.mark.parametrize(("days", "stale"), [(0.1, False), (3, True)])
def test_the_readers_clock_tells_what_is_stale(driver, tmp_path, days, stale):
    start = datetime.now(timezone.utc) - timedelta(days=days)
    sample_history.write(tmp_path / "results", healthy(1, start=start))
    dashboard.run(tmp_path / "results", tmp_path / "site", now=start + timedelta(hours=2))
    assert not json.loads((tmp_path / "site" / "regressions.json").read_text())["devices"][0][
        "stale"
    ]
    driver.get((tmp_path / "site" / "index.html").as_uri())
    assert find(driver, ".banner-stale").is_displayed() is stale
    assert find(driver, ".ago").text == ("(3 days ago)" if stale else "(2 hours ago)")


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_in_a_result_is_executed(driver, tmp_path, attack):
    night = healthy(1)[0]
    cell = night["cells"][0]
    night["commit"]["subject"] = night["runner"]["name"] = night["versions"]["torch"] = attack
    cell["config"] = cell["repro"] = attack
    night["verdict"]["cells"][cell["id"]] = {"word": "slower", "why": attack}
    night["steps"][0] |= {"status": "failed", "reason": attack}
    sample_history.write(tmp_path / "results", [night])
    dashboard.run(
        tmp_path / "results", tmp_path / "site", now=datetime(2026, 10, 2, tzinfo=timezone.utc)
    )
    driver.get((tmp_path / "site" / "index.html").as_uri())
    assert driver.title == "tlx_clc_plugin: nights"
    find(driver, "a.open").click()
    assert driver.title == cell["id"] and not driver.find_elements("css selector", "img")
    raw = driver.execute_script("return document.getElementById('raw').textContent")
    assert json.loads(raw)["config"] == attack


def test_pages_allow_no_script_of_others(front):
    """Even if something got into a page as HTML, it would not run."""
    front.execute_script(
        "const image = document.createElement('div');"
        'image.innerHTML = \'<img src="data:," onerror="document.title = 1">\';'
        "document.body.append(image);"
        "const script = document.createElement('script');"
        "script.textContent = 'document.title = 2'; document.body.append(script);"
    )
    front.execute_async_script("setTimeout(arguments[0], 100)")
    assert front.title == "tlx_clc_plugin: nights"
    refused = [entry["message"] for entry in front.get_log("browser")]
    assert len(refused) == 2 and all("Content Security Policy" in entry for entry in refused)

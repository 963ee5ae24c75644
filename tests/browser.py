"""A headless Chromium for tests, where it and its driver are installed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator:
    """A selenium driver, with an empty profile; skips, saying why, where there can be none."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("no Chromium with chromedriver on PATH (Debian: chromium, chromium-driver)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = selenium.ChromeOptions()
        options.binary_location = program
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        opened = selenium.Chrome(options, selenium.ChromeService(driver))
        try:
            yield opened
        finally:
            opened.quit()


def screenshot(driver, path: Path, width: int, height: int, *, dark: bool = False) -> None:
    """Look at the page in this size, and write what is seen as PNG."""
    look(driver, width, height, dark=dark)
    driver.save_screenshot(str(path))


def look(driver, width: int, height: int, *, dark: bool = False) -> None:
    """Make the page as large as given, in CSS pixels, and light or dark."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    # Two frames: one in which the page hears of it, and one in which it has drawn.
    driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )

"""A headless Chromium for tests of pages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)


def start_browser(folder: Path) -> webdriver.Chrome:
    """A browser with a fresh profile in `folder`; without Chromium the test fails, or is skipped if so wished."""
    if os.environ.get("CURIAX_NO_BROWSER") == "1":
        pytest.skip("CURIAX_NO_BROWSER=1")
    if missing := [program for program in (CHROMIUM, DRIVER) if not shutil.which(program)]:
        wish = "apt-get install chromium chromium-driver; or set CURIAX_NO_BROWSER=1 to skip these tests"
        pytest.fail(f"the report's page is tested in a browser, but {' and '.join(missing)} is missing: {wish}")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))

"""A headless Chromium for tests of pages."""

from __future__ import annotations

import shutil
from pathlib import Path

from parts import leave_out
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)


def start_browser(folder: Path) -> webdriver.Chrome:
    """A browser with a fresh profile in `folder`; where none starts, what asks for it is left out."""
    # Both by name: Selenium would otherwise look for them on the network.
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if missing := [name for name, found in programs.items() if not found]:
        leave_out("browser", f"no {' and no '.join(missing)} on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for flag in [*FLAGS.split(), f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        return webdriver.Chrome(options=options, service=Service(str(programs["chromedriver"])))
    except WebDriverException as error:
        leave_out("browser", f"it does not start: {error.msg}")

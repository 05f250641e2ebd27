"""Pages in a headless Chromium, driven by selenium; whoever has no browser skips, with the
reason.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from symshape.exploring.exploration import Exploration
from tests.discovery import REPOSITORY

AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Page:
    """A browser window.

    Attributes:
        driver: selenium's.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> Page:
        """Open a report and wait until it is drawn; see ``visit``."""
        self.visit(path, width=width, dark=dark)
        self.wait(
            "return document.querySelector('#symshape').app != null || "
            "document.querySelector('.symshape') != null"
        )
        return self

    def visit(self, place: Path | str, *, width: int = 1280, dark: bool = False) -> None:
        """Open a file or an address in a window of so many pixels, with light or dark preferred."""
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.execute_cdp_cmd("Performance.disable", {})
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(place if isinstance(place, str) else place.as_uri())

    def serious_findings(self) -> list[tuple[str, list[str]]]:
        """Return what axe-core holds for serious or critical: the rules, with the first elements
        that break them.
        """
        if not AXE.is_file():
            pytest.skip("axe-core is not there (`make browser` installs it)")
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document).then((found) => done(found.violations))"
        )
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        return [
            (each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious
        ]

    def show(self, exploration: Exploration, folder: Path, **window: Any) -> Page:
        """Saves an exploration and opens it."""
        return self.open(exploration.save(folder / "report.html"), **window)

    def run(self, script: str, *args: Any) -> Any:
        """What a script in the page answers; ``app`` is the report."""
        return self.driver.execute_script(
            f"const app = document.querySelector('#symshape').app; {script}", *args
        )

    def wait(self, script: str, seconds: float = 10) -> None:
        """Until a script answers true."""
        until = time.monotonic() + seconds
        while not self.driver.execute_script(script):
            assert time.monotonic() < until, f"never true: {script}"
            time.sleep(0.02)

    def worked(self) -> float:
        """How many milliseconds the page's thread has worked since it was opened, whatever else the
        machine does.
        """
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1e3 * next(float(each["value"]) for each in found if each["name"] == "TaskDuration")

    def tab(self, name: str) -> str:
        """Opens a tab by its name; the text of its panel."""
        self.run(
            "[...document.querySelectorAll('[role=tab]')].find((tab) => tab.textContent === "
            "arguments[0]).click()",
            name,
        )
        return str(self.run("return document.querySelector('.tabpanel:not([hidden])').innerText"))

    def complaints(self) -> list[str]:
        """What the browser has written to its console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was asked of the network since the page was opened, the page itself left out."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("file:", "data:"))]


def windows() -> Iterator[Page]:
    """One window, closed at the end."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        pytest.skip("selenium is not installed (extra dev)")
    binary = os.environ.get("SYMSHAPE_BROWSER") or next(
        (found for name in NAMES if (found := shutil.which(name))), None
    )
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(
            "there is no Chromium with its driver (Debian: apt-get install chromium "
            "chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    # A mouse is there: without one, the theme of the docs takes code out of the order of the tab
    # key.
    mouse = (
        "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,"
        "availablePointerTypes=4"
    )
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        mouse,
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Page(made)
    finally:
        made.quit()

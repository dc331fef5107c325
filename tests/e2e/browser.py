"""A real browser, without a screen: Debian's Chromium, driven over WebDriver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

T = TypeVar("T")

DEADLINE_S = 90.0
AXE = Path(__file__).parent / "axe" / "axe.min.js"
MISSING = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
_PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900")


class Browser:
    """One window. `url` is what paths begin with."""

    def __init__(self, url: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in _FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.url = url

    def go(self, path: str) -> None:
        self.driver.get(self.url + path)

    def find(self, selector: str) -> WebElement:
        return self.wait(lambda: self.all(selector), f"{selector} is there")[0]

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The element's text, asked in one go: it may be changed in place meanwhile."""
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        return " ".join(str(self.driver.execute_script(script, selector)).split())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, true: Callable[[], T], what: str) -> T:
        return WebDriverWait(self.driver, DEADLINE_S, 0.05).until(lambda _: true(), what)

    def see(self, selector: str, words: str) -> None:
        """Wait until the element says so."""
        self.wait(lambda: words in self.text(selector), f"{selector} says {words!r}, not {self.text(selector)[:300]!r}")

    def log_in(self, token: str) -> None:
        self.go("/login")
        self.find("#token").send_keys(token)
        self.find("form button").click()
        self.wait(lambda: "/login" not in self.driver.current_url, "logged in")

    def wear(self, theme: str) -> None:
        """Prefer `light` or `dark`, as the person's system would."""
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    @contextmanager
    def on_a_phone(self) -> Iterator[None]:
        """The window of a phone, 390 pixels wide."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", _PHONE)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def too_wide(self) -> list[str]:
        """What of the page does not fit the window: itself, or what would have to be moved sideways."""
        script = """const root = document.documentElement;
            const wide = [root, ...document.querySelectorAll("main .scroll")];
            return wide.filter((one) => one.scrollWidth > Math.min(one.clientWidth, arguments[0]))
              .map((one) => one.outerHTML.slice(0, 150))"""
        return list(self.driver.execute_script(script, _PHONE["width"]))

    def complaints(self) -> list[str]:
        """What the browser complained about since it was last asked: a forbidden script, an error in one of ours."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]

    def barriers(self) -> list[str]:
        """What axe finds that keeps people out of this page."""
        self.driver.execute_script(AXE.read_text())
        script = """const done = arguments[arguments.length - 1];
            axe.run({ resultTypes: ["violations"] }).then((found) => done(found.violations.flatMap(
              (one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 150)} (${node.failureSummary})`))))"""
        return list(self.driver.execute_async_script(script))

    def close(self) -> None:
        self.driver.quit()

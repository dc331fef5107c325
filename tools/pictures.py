"""Takes the screenshots in README.md and the documents, in a real browser, of a simulated fleet.

Usage: python -m tools.pictures [--stay]

Wants Chromium with its driver. With --stay it serves the pages until Ctrl-C instead, and says where.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tools.demo_fleet import DemoFleet

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
WIDE, HIGH, BELOW, QUALITY = 1280, 900, 12, 80
SEEN_WITHIN_S, SETTLED_WITHIN_S = 30.0, 120.0
WANTED = frozenset(
    {"suspect", "draining", "resetting", "replacing", "testing", "probation", "operator-held", "retired", "unknown"}
)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stay", action="store_true", help="serve the pages until Ctrl-C, and take no picture")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fleet = DemoFleet(Path(folder))
        try:
            _say("starts a made-up fleet, and waits until it shows all there is to show: half a minute, two at most")
            fleet.start()
            _settle(fleet)
            if asked.stay:
                _say(f"{fleet.url} with the token {fleet.token}; Ctrl-C ends it")
                while True:
                    time.sleep(1)
            take_pictures(fleet)
            _say(f"written: {PICTURES}")
        except KeyboardInterrupt:
            return 0
        finally:
            fleet.stop()
    return 0


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _settle(fleet: DemoFleet) -> None:
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while (missing := WANTED - fleet.words()) or not fleet.stragglers():
        if time.monotonic() > deadline:
            sys.stderr.write(f"missing on the pictures: {', '.join(sorted(missing)) or 'a straggler'}\n")
            return
        time.sleep(0.5)


def take_pictures(fleet: DemoFleet) -> None:
    """Write the screenshots."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        driver.get(f"{fleet.url}/login")
        driver.find_element(By.ID, "token").send_keys(fleet.token)
        driver.find_element(By.CSS_SELECTOR, "form button").click()
        WebDriverWait(driver, SEEN_WITHIN_S).until(lambda found: "/login" not in found.current_url)
        size = {"width": WIDE, "height": HIGH, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(f"{fleet.url}/")
        WebDriverWait(driver, SEEN_WITHIN_S).until(
            lambda found: found.find_elements(By.CSS_SELECTOR, "#heat[data-drawn]")
        )
        end = driver.execute_script(
            "return document.querySelector('#heat').closest('section').getBoundingClientRect().bottom"
        )
        clip = {"x": 0, "y": 0, "width": WIDE, "height": round(end) + BELOW, "scale": 1}
        asked = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": True, "clip": clip}
        picture = driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / "fleet.webp").write_bytes(base64.b64decode(picture["data"]))
    finally:
        driver.quit()


if __name__ == "__main__":
    sys.exit(main())

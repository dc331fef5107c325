"""The pages in a real browser, served by a real remediator."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from browser import MISSING, Browser
from controller_process import Controller
from web_controller import EVIL, serving, tell, window

from vocabulary.messages.wire import RankStatus

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with serving(tmp_path_factory.mktemp("controller")) as controller:
        all_tell(controller)
        yield controller


@pytest.fixture(scope="module")
def browser(controller: Controller) -> Iterator[Browser]:
    with window(controller) as browser:
        yield browser


def all_tell(controller: Controller) -> None:
    """What every test finds here: a node that is well, and one that is not and has a rank of a job."""
    tell(controller, "n1")
    rank = RankStatus(f"job-{EVIL}", 0, 0, 8, 1, 5, "step", time.time(), gpu="GPU-0")
    tell(controller, "n2", EVIL, (rank,), product=EVIL)


PAGES = ["/", "/?by=none&colour=health", "/nodes", "/nodes/n2", "/nodes/n1/actions/hold", "/search?q=n", "/nodes/none"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_shuts_nobody_out_and_breaks_no_rule(browser: Browser, path: str, theme: str) -> None:
    browser.complaints()
    browser.wear(theme)
    browser.go(path)
    browser.find("h1")
    assert browser.barriers() == []
    assert "owned" not in browser.driver.title
    ours = [line for line in browser.complaints() if "404 (Not Found)" not in line]
    assert ours == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone(browser: Browser, path: str) -> None:
    with browser.on_a_phone():
        browser.go(path)
        browser.find("h1")
        assert browser.too_wide() == []
        assert browser.barriers() == []


def test_a_wrong_token_is_told_and_a_right_one_leads_on(controller: Controller) -> None:
    browser = Browser(controller.url)
    try:
        browser.go("/nodes?match=n2")
        assert "/login?next=" in browser.driver.current_url
        browser.find("#token").send_keys("ghd_wrong")
        browser.find("form button").click()
        browser.see(".wrong", "this token is unknown")
        assert browser.barriers() == []
        browser.find("#token").send_keys(controller.tokens["vic"])
        browser.find("form button").click()
        browser.see("#list", "n2")
        assert browser.driver.current_url.endswith("/nodes?match=n2")
        assert browser.all("a[href*='/actions/']") == []
        browser.find(".who form button").click()
        browser.find("#token")
        browser.go("/")
        browser.find("#token")
    finally:
        browser.close()


def test_what_happens_appears_by_itself(browser: Browser, controller: Controller) -> None:
    browser.go("/nodes/n1")
    browser.see("#findings", "No findings")
    browser.see("#live", "live")
    browser.run("window.before = true; document.querySelector('#q').focus()")
    tell(controller, "n1", "a row waits")
    browser.see("#findings", "row_remap/pending a row waits")
    assert browser.run("return window.before && document.activeElement.id") == "q"  # the same page, the same focus


def test_hostile_words_are_shown_as_they_are(browser: Browser) -> None:
    browser.go("/nodes/n2")
    browser.see("#findings", "<script>document.title='owned'</script>")
    browser.see("#findings", "\\x1b]0;owned\\x07{{7*7}}")
    browser.see("#gpus", "onerror=")
    assert browser.all("main img, main script") == []
    assert browser.driver.title.startswith("n2")


def test_the_keyboard_goes_everywhere(browser: Browser) -> None:
    browser.go("/")
    browser.find("#live:not([hidden])")  # the scripts run
    body = browser.find("body")
    body.send_keys("/")
    assert browser.run("return document.activeElement.id") == "q"
    browser.find("#q").send_keys("n1\n")
    browser.wait(lambda: browser.driver.current_url.endswith("/nodes/n1"), "the search goes to the node")
    browser.find("#live:not([hidden])")
    browser.find("body").send_keys("?")
    assert browser.run("return document.getElementById('keys').open")
    browser.find("#keys button").click()
    browser.find("body").send_keys("gf")
    browser.wait(lambda: browser.driver.current_url == f"{browser.url}/", "g f goes to the fleet")


def test_the_picture_of_the_fleet_is_walked_by_keys(browser: Browser) -> None:
    browser.go("/?by=none")
    browser.find("#heat[data-drawn='2']")
    canvas = browser.find("#heat canvas")
    canvas.send_keys("n")
    browser.see("#heat-now", "unhealthy")
    browser.run("document.querySelector('#heat canvas').blur()")
    browser.find("#heat canvas").send_keys("\ue011")  # Home
    browser.see("#heat-now", "n1:")
    browser.find("#heat canvas").send_keys("\ue014")  # right
    browser.see("#heat-now", "n2:")
    browser.find("#heat canvas").send_keys("\ue007")  # Enter
    browser.wait(lambda: browser.driver.current_url.endswith("/nodes/n2"), "Enter opens the node")


def test_an_operator_takes_a_node_into_their_hands(browser: Browser, controller: Controller) -> None:
    browser.go("/nodes/n2")
    browser.find("a[href$='/actions/hold']").click()
    browser.see("main", "1 rank of 8 here")
    browser.find("#text").send_keys("I look at the cable")
    browser.find("main form button").click()
    browser.see(".done", "Node taken over")
    browser.see("#now", "ann: I look at the cable")
    said = controller.call("GET", "/v1/nodes/n2", "ann").json()["hands_off"]
    assert (said["actor"], said["why"]) == ("ann", "I look at the cable")
    browser.find("a[href$='/actions/release']").click()
    browser.find("main form button").click()
    browser.see(".done", "Node released")


def test_a_link_from_elsewhere_finds_the_login(browser: Browser) -> None:
    browser.driver.get(browser.url.replace("127.0.0.1", "localhost") + "/login")
    browser.run("location.href = arguments[0]", f"{browser.url}/nodes/n2")
    browser.wait(lambda: browser.driver.title.startswith("n2"), "the session is shown on the second try")


def test_without_scripts_the_same_is_there_in_words(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.go("/")
        assert "n2" in browser.find("#broken").text
        assert "all nodes" in browser.find("#in-words").text or "unknown" in browser.find("#in-words").text
        assert not browser.find("#heat").is_displayed()
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_page_says_when_nobody_answers_any_more(browser: Browser, controller: Controller) -> None:
    browser.go("/")
    browser.see("#live", "live")
    controller.end(signal.SIGKILL)
    browser.see("#live", "stale since")
    controller.start()
    all_tell(controller)  # ranks are known from memory alone
    browser.see("#live", "live")
    browser.see("#figures", "mode act")

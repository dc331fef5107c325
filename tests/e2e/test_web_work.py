"""The pages about incidents, jobs and work in a real browser, served by a real remediator in mode `approve`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import MISSING, Browser
from controller_process import Controller
from web_controller import EVIL, serving, tell, window

from vocabulary.messages.wire import RankStatus, StepWindow

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

JOB = "train/llama 70b"


@contextmanager
def asking(place: Path) -> Iterator[Controller]:
    """A controller in mode `approve`, with a job on two nodes of which one is faulty."""
    with serving(place, "approve", lemon=f"it fails {EVIL}") as controller:
        tell(controller, "n1", ranks=ranks(0))
        tell(controller, "n2", EVIL, ranks(8))
        yield controller


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with asking(tmp_path_factory.mktemp("controller")) as controller:
        yield controller


@pytest.fixture(scope="module")
def browser(controller: Controller) -> Iterator[Browser]:
    with window(controller) as browser:
        yield browser


def ranks(first: int) -> tuple[RankStatus, ...]:
    """Eight ranks of the job; rank 3 is slow."""
    return tuple(
        RankStatus(
            job=JOB,
            attempt=0,
            rank=rank,
            world=16,
            pid=1,
            step=640,
            phase="step",
            at=time.time(),
            step_median=1.0,
            sections_median={"communication": 0.05 if rank == 3 else 0.3},
            pipeline_stage=first // 8,
            gpu=f"GPU-{rank - first}",
            windows=tuple(StepWindow(8 * n, 8, 8, 1.0 + 0.01 * n, None, None, 0.3) for n in range(4)),
        )
        for rank in range(first, first + 8)
    )


def incident_of(controller: Controller) -> str:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = controller.call("GET", "/v1/awaiting", "ann").json()["awaiting"]
        if found:
            return str(found[0]["incident"])
        time.sleep(0.05)
    raise AssertionError("nothing waits for approval")


PAGES = [
    "/incidents",
    "/incidents/{incident}",
    "/incidents/{incident}/actions/approve",
    "/work",
    "/jobs",
    "/jobs/train/llama%2070b",
    "/stragglers",
    "/lemons",
    "/alerts",
    "/audit",
    "/control",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shuts_nobody_out_and_breaks_no_rule(browser: Browser, controller: Controller, path: str) -> None:
    incident = incident_of(controller)
    browser.complaints()
    for theme in ("light", "dark"):
        browser.wear(theme)
        browser.go(path.replace("{incident}", incident))
        browser.find("h1")
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.barriers() == []
    assert "owned" not in browser.driver.title
    assert browser.complaints() == []
    assert browser.all("main img, main script") == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone(browser: Browser, controller: Controller, path: str) -> None:
    with browser.on_a_phone():
        browser.go(path.replace("{incident}", incident_of(controller)))
        browser.find("h1")
        assert browser.too_wide() == []


def test_a_phone_shows_which_page_it_is(browser: Browser) -> None:
    """The list of pages is longer than its window."""
    right = "return document.querySelector('.top nav [aria-current]').getBoundingClientRect().right"
    with browser.on_a_phone():
        browser.go("/control")
        browser.find("h1")
        browser.wait(lambda: browser.run(right) <= 390, "where one is in the list of pages is seen")


def test_hostile_words_are_shown_as_they_are(browser: Browser, controller: Controller) -> None:
    browser.go(f"/incidents/{incident_of(controller)}")
    browser.see("#timeline", "<script>document.title='owned'</script>")
    browser.see("#findings", "\\x1b]0;owned\\x07{{7*7}}")


def test_a_lemon_says_how_sure_why_and_what_next(browser: Browser) -> None:
    browser.go("/lemons")
    browser.see("#list", "0.87")
    browser.see("#list", "it fails <script>document.title='owned'</script>")
    browser.see("#list", "run a preflight before its next job")


def test_the_slow_rank_stands_out(browser: Browser) -> None:
    browser.go("/jobs/train/llama%2070b")
    browser.see("#slowest", "+36 %")
    assert browser.run("return document.querySelectorAll('svg.ranks rect').length") == 16
    (worst,) = browser.all("svg.ranks rect.q4")
    assert "rank 3 on n1" in str(browser.run("return arguments[0].textContent", worst))


def test_the_log_grows_by_itself_while_a_note_is_being_written(browser: Browser, controller: Controller) -> None:
    incident = incident_of(controller)
    browser.go(f"/incidents/{incident}")
    browser.see("#live", "live")
    browser.run("document.querySelector('#note').open = true")
    browser.find("#note-text").send_keys("half a thou")
    answer = controller.call("POST", f"/v1/incidents/{incident}/notes", "ann", json={"text": "said elsewhere"})
    assert answer.ok
    browser.see("#timeline", "said elsewhere")  # it came by itself
    browser.find("#note-text").send_keys("ght")
    assert browser.find("#note-text").get_attribute("value") == "half a thought"
    browser.find("#note button").click()
    browser.see(".done", "Note added")
    browser.see("#timeline", "half a thought")
    browser.go("/audit?kind=note")
    browser.see("#list", "half a thought")


def test_automation_is_stopped_with_one_button_and_let_go_again(browser: Browser, controller: Controller) -> None:
    browser.go("/")
    browser.find("#live:not([hidden])")
    browser.find("body").send_keys("gm")
    browser.see("h1", "Mode and breaker")
    browser.find("#stop-text").send_keys("something is odd")
    browser.find(".stopper button").click()
    browser.see(".done", "Mode set")
    browser.see("#mode .now-mode", "observe")
    assert controller.call("GET", "/v1/status", "ann").json()["mode"] == "observe"
    browser.go("/jobs")
    browser.see("#blocked", "something is odd")  # on every page, who stopped it and why
    browser.go("/control")
    browser.find("input[name=mode][value='']").click()
    browser.find("section[aria-labelledby=change-title] button").click()
    browser.see("#mode .now-mode", "approve")


def test_a_plan_is_approved_after_a_look_at_whom_it_hits(tmp_path: Path) -> None:
    with asking(tmp_path) as controller, window(controller) as browser:  # its own: what is approved waits no more
        approve(browser, controller)


def approve(browser: Browser, controller: Controller) -> None:
    incident = incident_of(controller)
    browser.go("/work")
    browser.see("#awaiting", "1 of its 2 nodes, 16 ranks in all")
    browser.find("#awaiting a.dangerous").click()
    browser.see("main", "Impact")
    browser.find("main form button.dangerous").click()
    browser.see(".done", "Approved")
    browser.see("#now", "Plan")
    browser.see("#timeline", "by rule")
    assert controller.call("GET", f"/v1/incidents/{incident}", "ann").json()["state"] in {"acting", "waiting"}

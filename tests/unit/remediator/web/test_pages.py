"""Every page: it comes, it shows what the API knows, and what a node says stays text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from remediator.api.access_control import Access
from remediator.web.page_entry import PageEntry
from remediator.web.page_routes import PAGES
from remediator.web.template_rendering import HEADERS
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import EVIL, finding, report
from tests.unit.remediator.web.simulated_browser import Browser
from vocabulary.health import Health


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    centre = Inside(tmp_path_factory.mktemp("centre"))
    report(centre, "n1", findings=(finding("n1", EVIL),), job=f"job/{EVIL}", health=Health.UNHEALTHY, product=EVIL)
    report(centre, "n2")
    deadline = time.monotonic() + 90
    while not centre.service.engine.snapshot.incidents and time.monotonic() < deadline:
        time.sleep(0.02)
    yield centre
    centre.close()


PATHS = ["/", "/?by=none&broken=1", "/nodes", "/nodes?match=n1", "/nodes/n1", "/nodes/n1/actions/hold", "/search?q=n"]


class Outline(HTMLParser):
    """Which elements and attributes a page has."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", PATHS)
def test_a_page_comes_whole_with_its_rules(told: Inside, path: str) -> None:
    answer = Browser(told).log_in("ann").get(path)
    assert answer.status == 200, answer.body
    assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS
    page = Outline(answer.body)
    assert "mode recommend" in page.text  # what blocks automation is on every page
    assert "Generated 20" in page.text
    assert "ann" in page.text
    assert [tag for tag, _ in page.tags].count("h1") == 1


@pytest.mark.parametrize("path", PATHS)
def test_what_a_node_says_is_text(told: Inside, path: str) -> None:
    answer = Browser(told).log_in("ann").get(path)
    page = Outline(answer.body)
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        assert tag != "img"
        assert "style" not in attributes  # the policy forbids it, and so would break
    assert b"<script>alert" not in answer.body
    assert "\x1b" not in answer.body.decode()
    assert "\u202e" not in answer.body.decode()
    assert "49" not in re.findall(r"\}\}|49(?=\\x1b)", page.text)


def test_the_hostile_words_do_arrive(told: Inside) -> None:
    page = Outline(Browser(told).log_in("ann").get("/nodes/n1").body)
    assert page.text.count("<script>alert(1)</script>") >= 3
    assert "\\x1b[2J\\u202e" in page.text


def test_the_first_page_says_what_is_broken(told: Inside) -> None:
    page = Outline(Browser(told).log_in("vic").get("/").body)
    assert "1 open incident" in " ".join(page.text.split())
    assert "row_remap" in page.text


def test_the_picture_holds_every_node_once_and_is_sent_once(told: Inside) -> None:
    browser = Browser(told).log_in("vic")
    answer = browser.get("/fleet.json?by=none")
    picture = json.loads(answer.body)
    [group] = picture["groups"]
    assert group["nodes"] == ["n1", "n2"]
    assert len(group["states"]) == len(group["healths"]) == 2
    assert picture["healths"][int(group["healths"][0], 36)] == "unhealthy"
    again = browser.get("/fleet.json?by=none", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def path_to(page: PageEntry) -> str:
    words = {"node": "n2", "action": "hold", "job:path": "none"}
    return re.sub(r"\{([^}]+)\}", lambda found: words.get(found[1], "none"), page.path)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.method} {p.path}")
def test_every_page_keeps_its_rule(told: Inside, page: PageEntry) -> None:
    path = path_to(page)
    stranger, viewer = Browser(told), Browser(told).log_in("vic")
    if page.method == "POST":
        assert stranger.post(path, {"text": "x"}).status == 401
        assert viewer.post(path, {"text": "x", "csrf": "wrong"}).status == 403
        return
    answer = stranger.get(path)
    assert (answer.status, answer.headers["location"].partition("?")[0]) == (303, "/login")
    if path != "/live":  # it never ends
        wanted = {403} if page.access is not Access.VIEWER else {200, 404}  # what the path names need not be there
        assert viewer.get(path).status in wanted


def test_no_such_node_is_an_error_page(told: Inside) -> None:
    answer = Browser(told).log_in("vic").get("/nodes/none")
    assert answer.status == 404
    assert b"No node none has ever reported" in answer.body
    assert answer.headers["content-type"].startswith("text/html")


def test_an_address_that_leads_nowhere_is_a_page_for_browsers_alone(told: Inside) -> None:
    opened = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = told.call("GET", "/nope", headers=opened)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (404, "text/html")
    assert b"There is no such page" in answer.body
    for path, headers in (("/nope", {}), ("/v1/nope", opened), ("/static/0/nope.css", {"accept": "text/css,*/*"})):
        assert not told.call("GET", path, headers=headers).headers["content-type"].startswith("text/html")
    assert told.call("GET", "/login", headers=opened).status == 200


def test_static_files_are_named_by_their_content(told: Inside) -> None:
    body = Browser(told).get("/login").body.decode()
    [sheet] = re.findall(r'href="(/static/\w+/pages\.css)"', body)
    answer = told.call("GET", sheet)
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    assert told.call("GET", re.sub(r"/static/\w+", "/static/0123456789abcdef", sheet)).status == 404
    assert told.call("GET", sheet.replace("pages.css", "..%2fapp.py")).status == 404

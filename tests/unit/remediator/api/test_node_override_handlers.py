"""What operators do with nodes over HTTP, what `healthctl` shows of it, and what the audit log says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remediator.api import hazard_handlers
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from vocabulary.messages.wire import RankStatus


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path)
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
    yield centre
    centre.close()


def say(centre: Inside, word: str, body: dict[str, Any], who: str = "ann", node: str = "n1") -> int:
    return centre.call("POST", f"/v1/nodes/{node}/{word}", who, body).status


def shown(centre: Inside) -> dict[str, Any]:
    found: dict[str, Any] = centre.call("GET", "/v1/nodes/n1", "vic").json()
    return found


def audited(centre: Inside) -> list[tuple[str, str]]:
    events = centre.call("GET", "/v1/events", "ann").json()["events"]
    return [(e["actor"], e["data"]["word"]) for e in events if e["kind"] == "node_said"]


def test_hands_off_until_released(centre: Inside) -> None:
    for _ in range(2):  # saying it again changes nothing
        assert say(centre, "hold", {"text": "a fan is changed"}) == 204
    node = shown(centre)
    assert node["state"] == "operator-held"
    assert node["hands_off"] == {"actor": "ann", "why": "a fan is changed"}
    assert say(centre, "hold", {"text": "a fan is changed", "until": time.time() + 3600}) == 204
    assert shown(centre)["hands_off"]["until"] > time.time()
    for _ in range(2):
        assert say(centre, "release", {}) == 204
    assert "hands_off" not in shown(centre)
    assert centre.call("POST", "/v1/nodes/n1/release", "ann").status == 204  # nothing to say, so nothing sent
    assert audited(centre) == [("ann", "hold"), ("ann", "hold"), ("ann", "release")]


def test_a_hold_ends_by_itself(centre: Inside) -> None:
    deadline = time.monotonic() + 60
    while say(centre, "hold", {"text": "an hour", "until": time.time() + 0.5}) != 204:
        assert time.monotonic() < deadline, "each was over before it was read"
    while "hands_off" in shown(centre):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_retired_and_taken_back(centre: Inside) -> None:
    for _ in range(2):
        assert say(centre, "retire", {"text": "sold"}) == 204
    assert shown(centre)["state"] == "retired"
    assert say(centre, "hold", {"text": "x"}) == 409
    for _ in range(2):
        assert say(centre, "unretire", {"text": "bought back"}) == 204
    assert shown(centre)["state"] in {
        "probation",
        "suspect",
    }  # at once, and once what it still asserts is taken up again
    assert audited(centre) == [("ann", "retire"), ("ann", "unretire")]


def test_what_is_refused(centre: Inside) -> None:
    later = time.time() + 60
    for word, body, who, node, status in (
        ("hold", {"text": " "}, "ann", "n1", 400),
        ("hold", {}, "ann", "n1", 400),
        ("hold", {"text": "x", "until": 1.0}, "ann", "n1", 400),
        ("hold", {"text": "x", "until": 1e300}, "ann", "n1", 400),
        ("hold", {"text": "x", "until": later, "for": 1}, "ann", "n1", 400),
        ("retire", {}, "ann", "n1", 400),
        ("hold", {"text": "x"}, "vic", "n1", 403),
        ("hold", {"text": "x"}, "n1", "n1", 403),
        ("release", {}, "ann", "n2", 404),
        ("hold", {"text": "x"}, "ann", "n2", 404),
    ):
        assert say(centre, word, body, who, node) == status, (word, body)
    assert audited(centre) == []


def test_nodes_in_portions(centre: Inside) -> None:
    assert centre.call("POST", "/v1/nodes/n2/report", "n2", report("n2")).status == 200
    pages = ("", "?limit=1", "?limit=1&after=n1", "?after=n2")
    found = [centre.call("GET", f"/v1/nodes{page}", "vic").json()["nodes"] for page in pages]
    assert [[node["node"] for node in page] for page in found] == [["n1", "n2"], ["n1"], ["n2"], []]
    assert found[0][0]["incident"].startswith("inc-")
    assert centre.call("GET", "/v1/nodes?limit=0", "vic").status == 400


def rank(job: str) -> RankStatus:
    return RankStatus(job, 0, 0, 1, 4242, 1, "forward", 1.0)


def test_a_job_that_just_came_is_asked_about_at_once(centre: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes and findings are sorted by job once in a while; who holds a rank need not wait for that."""
    monkeypatch.setattr(hazard_handlers, "STALE_S", 1e9)
    monkeypatch.setattr(hazard_handlers, "NEWS_S", 0.0)
    for seq, job in ((2, "a"), (3, "b/1"), (4, "b/hazard")):
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(seq=seq, ranks=(rank(job),))).status == 200
        deadline = time.monotonic() + 60
        while centre.call("GET", f"/v1/hazard/{job}", "n1").status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for who, status in (("n1", 200), ("vic", 200), ("n2", 403)):
            assert centre.call("GET", f"/v1/hazard/{job}", who).status == status
        assert centre.call("GET", f"/v1/jobs/{job}", "vic").json()["job"] == job  # whatever it is called
    assert centre.call("GET", "/v1/hazard/a", "n1").status == 403  # it has left
    assert centre.call("GET", "/v1/hazard/none", "vic").status == 404


def test_a_number_that_is_no_events_is_refused(centre: Inside) -> None:
    for number in ("9" * 5000, "0" * 20 + "9" * 30, "9" * 19, "-1", "1e3", "\u0661"):
        words = number.encode("utf-8").decode("latin-1")
        assert centre.call("GET", "/v1/events/stream", "ann", headers={"last-event-id": words}).status == 400

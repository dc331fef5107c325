"""How often, how many, how deep, how long: and a revocation ends what is open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.api.rate_limits import RequestSlots, TokenBuckets
from remediator.model.credentials import Role
from remediator.server_config import AccessLimits
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from vocabulary.messages.wire import FindingChange, RankStatus, Report, decode_message, encode_message


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Inside]:
    limits = AccessLimits(
        node_per_s=0.001, node_burst=3, person_per_s=0.001, person_burst=6, unknown_per_s=0.001, unknown_burst=4,
        polls_per_node=1, streams_per_person=1,
    )  # fmt: skip
    centre = Inside(tmp_path, limits=limits)
    yield centre
    centre.close()


@given(st.lists(st.floats(0, 10), max_size=60), st.floats(0.1, 10), st.integers(1, 9))
def test_a_bucket_never_gives_more_than_its_burst_and_rate(pauses: list[float], per_s: float, burst: int) -> None:
    now, given_out = 0.0, 0
    bucket = TokenBuckets(per_s, burst, lambda: now)
    for pause in pauses:
        now += pause
        given_out += bucket.wait_s("k") == 0
        assert given_out <= burst + per_s * now + 1e-6
    wait_s = bucket.wait_s("k")
    now += wait_s + 1e-6
    assert wait_s == 0 or bucket.wait_s("k") == 0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 50)), max_size=60), st.floats(0.1, 10), st.integers(1, 9))
def test_what_is_charged_afterwards_is_paid_for_in_time(
    told: list[tuple[float, float]], per_s: float, burst: int
) -> None:
    now, charged = 0.0, 0.0
    bucket = TokenBuckets(per_s, burst, lambda: now)
    for pause, weight in told:
        now += pause
        if bucket.retry_after_s("k") == 0:
            assert charged <= burst + per_s * now + 1e-6, "more was taken while something was owed"
            bucket.charge("k", weight)
            charged += weight
    now += bucket.retry_after_s("k") + 1e-6
    assert bucket.retry_after_s("k") == 0
    assert bucket.retry_after_s("another") == 0


def test_seats_are_given_back() -> None:
    seats = RequestSlots(1, 2)
    with seats.one("a") as first, seats.one("a") as again, seats.one("b") as second, seats.one("c") as third:
        assert (first, again, second, third) == (True, False, True, False)
    with seats.one("a") as first:
        assert first


def test_who_asks_too_often_is_told_when_to_come_again_and_others_are_served(strict: Inside) -> None:
    answers = [strict.call("POST", "/v1/nodes/n1/report", "n1", report(seq=n)) for n in range(1, 5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 1
    assert strict.call("POST", "/v1/nodes/n2/report", "n2", report("n2")).status == 200


@pytest.fixture
def paced(tmp_path: Path) -> Iterator[Inside]:
    limits = AccessLimits(news_per_s=0.001, news_burst=22)  # the first report tells of a placement, too: 10
    centre = Inside(tmp_path, limits=limits)
    yield centre
    centre.close()


def told(node: str, seq: int, number: int) -> bytes:
    """A report with so many findings that nobody knows yet."""
    changes = tuple(FindingChange(seq=n + 1, finding=finding(node, f"{seq}-{n}")) for n in range(number))
    return encode_message(replace(decode_message(report(node, seq=seq), Report), changes=changes))


def test_who_tells_more_than_its_share_is_asked_to_wait_and_nobody_else(paced: Inside) -> None:
    path = "/v1/nodes/n1/report"
    assert paced.call("POST", path, "n1", told("n1", 1, 10)).status == 200
    assert paced.call("POST", path, "n1", told("n1", 2, 10)).status == 200, "one that is begun is taken whole"
    refused = paced.call("POST", path, "n1", told("n1", 3, 10))
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) > 1000
    assert "nothing was accepted" in refused.json()["error"]
    assert sum(f.node == "n1" for f in paced.service.engine.snapshot.findings.values()) == 20
    assert paced.call("POST", "/v1/nodes/n2/report", "n2", told("n2", 1, 10)).status == 200


def test_what_only_repeats_itself_is_not_counted(paced: Inside) -> None:
    active = tuple(finding("n1", str(n)) for n in range(9))
    for seq in range(1, 40):
        body = encode_message(replace(decode_message(report("n1", seq=seq), Report), active=active))
        assert paced.call("POST", "/v1/nodes/n1/report", "n1", body).status == 200


def test_many_findings_that_come_and_go_are_news_each_time(paced: Inside) -> None:
    codes = []
    for seq in range(1, 6):
        active = tuple(finding("n1", f"{seq}-{n}") for n in range(4))
        body = encode_message(replace(decode_message(report("n1", seq=seq), Report), active=active))
        codes.append(paced.call("POST", "/v1/nodes/n1/report", "n1", body).status)
    assert codes == [200, 200, 200, 429, 429]


def test_jobs_that_come_and_go_are_news_each_time(paced: Inside) -> None:
    codes = []
    for seq in range(1, 5):
        rank = RankStatus(job="j", attempt=seq, rank=0, world=1, pid=1, step=1, phase="step", at=1.0)
        body = encode_message(replace(decode_message(report("n1", seq=seq), Report), ranks=(rank,)))
        codes.append(paced.call("POST", "/v1/nodes/n1/report", "n1", body).status)
    assert codes == [200, 200, 200, 429]


def test_guessing_is_slowed_down_and_locks_nobody_out(strict: Inside) -> None:
    guesses = [strict.call("GET", "/v1/status", f"ghd_{n}").status for n in range(6)]
    assert guesses == [401, 401, 401, 401, 429, 429]
    assert strict.call("GET", "/v1/status", "ann").status == 200  # from the same address
    assert strict.call("GET", "/v1/status", "ghd_1", client=("192.0.2.8", 1)).status == 401


def test_a_node_holds_so_many_polls_open(strict: Inside) -> None:
    first = strict.begin("GET", "/v1/nodes/n1/orders?wait_s=60", "n1")
    deadline = time.monotonic() + 60
    while not strict.service.gate.polls._taken:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert strict.call("GET", "/v1/nodes/n1/orders?wait_s=60", "n1").status == 429
    strict.tokens.revoke(2.0, role=Role.NODE, name="n1")
    strict.wakeups.wake()
    assert first.result(30).status == 401


def test_a_revocation_by_another_process_ends_open_polls(shared: Inside) -> None:
    tokens = type(shared.tokens)(shared.journal.engine)
    node = tokens.issue(Role.NODE, "n7", 1.0)
    viewer = tokens.issue(Role.VIEWER, "vera", 1.0)
    poll = shared.begin("GET", "/v1/nodes/n7/orders?wait_s=60", node)
    follow = shared.begin("GET", f"/v1/events?after={10**9}&wait_s=60", viewer)
    stream = shared.begin("GET", "/v1/events/stream", viewer)
    assert shared.call("GET", "/v1/status", viewer).status == 200
    tokens.revoke(2.0, role=Role.NODE, name="n7")
    tokens.revoke(2.0, role=Role.VIEWER, name="vera")
    assert poll.result(30).status == 401
    assert follow.result(30).status == 401
    assert stream.result(30).status == 200  # it had begun; it ends
    assert shared.call("GET", "/v1/status", viewer).status == 401


def test_an_admin_runs_the_tokens(shared: Inside) -> None:
    made = shared.call("POST", "/v1/tokens", "root", {"role": "viewer", "name": "eve", "expires_s": 60}).json()["token"]
    assert shared.call("GET", "/v1/status", made).status == 200
    (mine,) = [t for t in shared.call("GET", "/v1/tokens", "root").json()["tokens"] if t["name"] == "eve"]
    assert mine["issued_by"] == "root (192.0.2.7)"
    assert made not in str(shared.call("GET", "/v1/tokens", "root").body)
    wish = {"role": "viewer", "name": "eve", "overlap_s": 3600}
    newer = shared.call("POST", "/v1/tokens/rotate", "root", wish).json()["token"]
    assert [shared.call("GET", "/v1/status", token).status for token in (made, newer)] == [200, 200]
    assert shared.call("POST", f"/v1/tokens/{mine['id']}/revoke", "root").status == 204
    assert [shared.call("GET", "/v1/status", token).status for token in (made, newer)] == [401, 200]
    assert shared.call("POST", "/v1/tokens/none/revoke", "root").status == 404
    wish = {"role": "join", "name": "j-*", "uses": 2}
    assert shared.call("POST", "/v1/tokens", "root", wish).status == 200
    listed = shared.call("GET", "/v1/tokens", "root").json()["tokens"]
    assert [t["expires_at"] - t["issued_at"] for t in listed if t["name"] == "j-*"] == [86400.0]
    for wrong in (
        {"role": "join", "name": "x"},
        {"role": "viewer", "name": "a b"},
        {"role": "viewer", "name": "a", "uses": 2},
        {"role": "viewer", "name": "a", "replaces": True},
        {"role": "join", "name": "a b", "uses": 2},
    ):
        assert shared.call("POST", "/v1/tokens", "root", wrong).status == 400


def test_a_node_enrols_itself_and_nobody_else(shared: Inside) -> None:
    token = shared.call("POST", "/v1/enrol", "join", {"node": "gpu-7"}).json()["token"]
    assert shared.call("POST", "/v1/nodes/gpu-7/report", token, report("gpu-7")).status == 200
    assert shared.call("POST", "/v1/nodes/gpu-8/report", token, report("gpu-8")).status == 403
    assert shared.call("POST", "/v1/enrol", "join", {"node": "gpu-7"}).status == 403
    assert shared.call("POST", "/v1/enrol", "join", {"node": "n9"}).status == 403
    assert shared.call("POST", "/v1/enrol", token, {"node": "gpu-8"}).status == 403


def test_bodies_are_bounded_in_length_depth_and_number(shared: Inside) -> None:
    deep = b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert shared.call("POST", "/v1/nodes/n1/report", "n1", deep).status == 400
    many = report(findings=tuple(finding("n1", str(n)) for n in range(501)), active=())
    assert shared.call("POST", "/v1/nodes/n1/report", "n1", many).status == 413
    assert shared.call("POST", "/v1/tokens", "root", b" " * 5000).status == 413


def test_the_stream_resumes_after_the_event_it_is_told(shared: Inside) -> None:
    viewer = shared.tokens.issue(Role.VIEWER, "sid", 1.0)
    last = shared.journal.last_event()
    stream = shared.begin("GET", "/v1/events/stream", viewer, headers={"last-event-id": str(last - 2)})
    shared.tokens.issue(Role.VIEWER, "later", 1.0)
    time.sleep(0.1)
    shared.tokens.revoke(2.0, role=Role.VIEWER, name="sid")
    shared.wakeups.wake()
    answer = stream.result(30)
    assert answer.headers["content-type"].startswith("text/event-stream")
    ids = [int(line[4:]) for line in answer.body.decode().splitlines() if line.startswith("id: ")]
    assert ids[:2] == [last - 1, last]
    assert shared.call("GET", "/v1/events/stream", "ann", headers={"last-event-id": "x"}).status == 400

"""Messages of many nodes in one request: each by the rules of its own route, and none at another's cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from remediator.api.report_handlers import HEARTBEAT_BYTES_MAX
from remediator.model.credentials import Role
from remediator.model.message_batch import BATCH_MESSAGES_MAX, AllOrders, DeliveredMessage, MessageAnswer
from remediator.server_config import AccessLimits
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding
from tests.unit.vocabulary.test_heartbeat import BASE
from vocabulary.messages.heartbeat import build_heartbeat, encode_heartbeat
from vocabulary.messages.wire import REPORT_BYTES_MAX, ReportReply

GOOD: dict[str, Any] = {
    "version": 1, "node": "n1", "boot_id": "b", "agent": "a", "seq": 1, "sent_at": 1.0, "ttl_s": 30.0, "health": "healthy",
}  # fmt: skip


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path)
    yield centre
    centre.close()


def report(node: str, kind: str = "report", **changes: Any) -> DeliveredMessage:
    return DeliveredMessage(node, kind, msgspec.json.encode(GOOD | {"node": node} | changes))


def deliver(centre: Inside, *messages: DeliveredMessage) -> list[MessageAnswer]:
    answer = centre.call("POST", "/v1/reports", "i1", msgspec.msgpack.encode(messages))
    assert answer.status == 200, answer.body
    return msgspec.msgpack.decode(answer.body, type=list[MessageAnswer])


def error_of(answer: MessageAnswer) -> str:
    text: str = json.loads(answer.body)["error"]
    return text


def test_each_message_is_answered_as_by_its_own_route(centre: Inside) -> None:
    news = {"seq": 7, "finding": msgspec.to_builtins(finding("n2"))}
    messages = (
        report("n1"),
        report("n2", changes=[news]),
        DeliveredMessage("n1", "report", b"nonsense"),
        report("n1", active=[msgspec.to_builtins(finding("n2"))]),
        report("unknown"),
        report("n1", "fax"),
        DeliveredMessage("n1", "report", bytes(REPORT_BYTES_MAX + 1)),
        DeliveredMessage("n1", "answer", b'{"id": "no such order", "state": "succeeded", "at": 1.0}'),
        DeliveredMessage("n1", "answer", b"{}"),
        DeliveredMessage("n1", "hazard", b"no such job"),
    )
    answers = deliver(centre, *messages)
    assert [answer.status for answer in answers] == [200, 200, 400, 403, 401, 400, 413, 204, 400, 403]
    assert json.loads(answers[1].body)["acked_seq"] == 7
    with centre.journal.engine.connect() as db:
        stored = db.exec_driver_sql("SELECT node FROM findings").scalars().all()
    assert stored == ["n2"], "durable, once answered"


def test_heartbeats_are_delivered_too(centre: Inside) -> None:
    (first,) = deliver(centre, DeliveredMessage("n1", "report", msgspec.json.encode(BASE)))
    assert msgspec.json.decode(first.body, type=ReportReply).base == BASE.seq
    built = build_heartbeat(BASE, replace(BASE, seq=8), {})
    packed = None if built is None else encode_heartbeat(built)
    assert packed is not None
    messages = [("n1", packed), ("n2", packed), ("n1", b"nonsense"), ("n1", bytes(HEARTBEAT_BYTES_MAX + 1))]
    answers = deliver(centre, *(DeliveredMessage(node, "heartbeat", body) for node, body in messages))
    assert [answer.status for answer in answers] == [200, 409, 400, 413]
    entry = centre.service.report_registry.get("n1")
    assert entry is not None
    assert entry.seq == 8


def test_the_node_is_the_messages_and_not_the_bodys(centre: Inside) -> None:
    forged = DeliveredMessage("n1", "report", report("n2").body)
    assert error_of(deliver(centre, forged)[0]) == "node n1 may not report on node n2"


def test_only_an_ingest_delivers_and_fetches_and_it_may_do_nothing_else(centre: Inside) -> None:
    body = msgspec.msgpack.encode([report("n1")])
    for who in ("n1", "vic", "ann", "root", "join"):
        assert centre.call("POST", "/v1/reports", who, body).status == 403, who
        assert centre.call("GET", "/v1/orders", who).status == 403, who
    for path in ("/v1/nodes", "/v1/nodes/n1/orders", "/v1/tokens", "/v1/hazard/j", "/v1/incidents"):
        assert centre.call("GET", path, "i1").status == 403, path


def test_revocation_acts_on_the_next_message(centre: Inside) -> None:
    assert deliver(centre, report("n1"), report("n2", seq=1))[0].status == 200
    centre.tokens.revoke(centre.service.clock.wall(), role=Role.NODE, name="n1")
    answers = deliver(centre, report("n1", seq=2), report("n2", seq=2))
    assert [answer.status for answer in answers] == [401, 200]


def test_one_node_that_floods_delays_no_other(tmp_path: Path) -> None:
    centre = Inside(tmp_path, limits=AccessLimits(node_per_s=0.01, node_burst=2))
    try:
        answers = deliver(centre, *(report("n1", seq=seq) for seq in range(1, 5)), report("n2"))
        assert [answer.status for answer in answers] == [200, 200, 429, 429, 200]
        assert answers[2].retry_after_s > 0
    finally:
        centre.close()


def test_a_batch_has_bounds(centre: Inside) -> None:
    many = msgspec.msgpack.encode([report("n1")] * (BATCH_MESSAGES_MAX + 1))
    assert centre.call("POST", "/v1/reports", "i1", many).status == 413
    for body in (
        b"",
        b"nonsense",
        msgspec.msgpack.encode([["n1", "report"]]),
        msgspec.msgpack.encode([[b"\xff", 1, 2]]),
    ):
        assert centre.call("POST", "/v1/reports", "i1", body).status == 400


def test_a_standing_poll_for_orders_ends_with_its_token(centre: Inside) -> None:
    known = msgspec.json.decode(centre.call("GET", "/v1/orders?wait_s=0", "i1").body, type=AllOrders)
    assert known.nodes == ()
    poll = centre.begin("GET", f"/v1/orders?wait_s=50&known={known.version}", "i1")
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), centre._loop).result(10)
    centre.tokens.revoke(centre.service.clock.wall(), role=Role.INGEST, name="i1")
    centre.wakeups.wake()
    assert poll.result(60).status == 401

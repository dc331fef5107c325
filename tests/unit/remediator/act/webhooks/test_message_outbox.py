"""The outbox on a real database, carrying to a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine

from remediator.model.delivery import Delivery, DeliveryState, LeadershipLost
from remediator.notifications.message_outbox import MessageOutbox
from remediator.store import table_schema
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import Peer, delivery, message, standing, until
from vocabulary.finding import Severity

Make = Callable[[dict[str, Any]], MessageOutbox]


def sent(store: DeliveryStore) -> list[Delivery]:
    return [item for item in store.latest(1000) if item.state is DeliveryState.SENT]


def test_the_short_form_still_posts_one_plain_object_a_message_with_its_key(
    peer: Peer, outbox: Make, store: DeliveryStore
) -> None:
    box = outbox({"webhooks": [peer.url]})
    box.start(standing({"inc-1", "inc-2"}))
    assert list(box.put(message(1))) == ["webhook-1"]
    box.put(message(2))
    until(lambda: len(sent(store)) == 2)
    bodies = {json.loads(body)["id"]: json.loads(body) for _, _, body in peer.got}
    assert bodies["inc-1.d1.s0.0.alert.n1"]["title"] == "xid/79 on gpu 3"
    assert len({headers["idempotency-key"] for _, headers, _ in peer.got}) == 2


def test_what_fails_is_sent_again_under_the_same_key_and_words(peer: Peer, outbox: Make, store: DeliveryStore) -> None:
    peer.statuses = [500]
    box = outbox({"webhooks": [peer.url]})
    box.start(standing({"inc-1"}))
    box.put(message())
    until(lambda: sent(store))
    (_, first, body), (_, second, again) = peer.got
    assert first["idempotency-key"] == second["idempotency-key"]
    assert body == again
    assert sent(store)[0].attempts == 2
    assert box.counts() == {"webhook-1": {"sent": 1, "failed": 1, "given_up": 0}}


def test_a_message_put_twice_is_sent_once(peer: Peer, outbox: Make, store: DeliveryStore) -> None:
    box = outbox({"webhooks": [peer.url]})
    box.put(message())
    box.put(message())
    box.start(standing({"inc-1"}))
    until(lambda: sent(store))
    box.put(message())
    box.put(message(2))
    until(lambda: len(sent(store)) == 2)
    assert len(peer.got) == 2


def test_a_receiver_that_is_dead_delays_no_other(peer: Peer, outbox: Make, store: DeliveryStore) -> None:
    box = outbox({"webhooks": [peer.url, "http://127.0.0.1:1/x"]})
    box.start(standing({"inc-1"}))
    box.put(message())
    until(lambda: sent(store))
    (waits,) = until(lambda: [i for i in store.waiting("webhook-2") if i.attempts])
    assert waits.detail == "127.0.0.1:1: Connection refused"


def test_an_incident_that_is_over_is_said_to_be_over_once(peer: Peer, outbox: Make, store: DeliveryStore) -> None:
    open_ones = {"inc-1"}
    box = outbox({"receivers": {"chat": {"kind": "slack", "url": peer.url, "group_s": 0}}})
    box.start(standing(open_ones))
    box.put(message())
    until(lambda: sent(store))
    open_ones.clear()
    box.put(message(2, page=False))  # wakes it
    until(lambda: len([i for i in sent(store) if i.phase.value == "resolve"]) == 2)
    said = [json.loads(body)["text"] for _, _, body in peer.got]
    assert sum("resolved: fatal: n1" in text for text in said) == 1 or any("1 resolved" in text for text in said)
    assert store.unresolved("chat") == []
    assert store.waiting("chat") == []


def test_what_was_left_by_another_process_is_carried_on(peer: Peer, outbox: Make, store: DeliveryStore) -> None:
    left = delivery(1, id="a@webhook-1", receiver="webhook-1", batch="msg_left", claimed_at=1.0)
    store.add([left])
    outbox({"webhooks": [peer.url]}).start(standing({"inc-1"}))
    until(lambda: sent(store))
    ((_, headers, _),) = peer.got
    assert headers["idempotency-key"] == "msg_left"


def test_a_leader_that_was_overtaken_sends_nothing_more(
    peer: Peer, outbox: Make, store: DeliveryStore, database: Engine
) -> None:
    with database.begin() as db:
        db.execute(table_schema.meta.update().values(value="2"))
    with pytest.raises(LeadershipLost):
        store.save([delivery()], 1)
    box = outbox({"webhooks": [peer.url]})
    box.start(standing({"inc-1"}))
    box.put(message())
    until(lambda: not box._couriers["webhook-1"]._thread.is_alive())
    assert peer.got == []
    assert [i.batch for i in store.waiting("webhook-1")] == [""]


def test_quiet_hours_hold_back_what_wakes_nobody_and_nothing_else(
    peer: Peer, outbox: Make, store: DeliveryStore
) -> None:
    always = [{"from": "00:00", "to": "12:00"}, {"from": "12:00", "to": "00:00"}]
    box = outbox({"receivers": {"chat": {"kind": "slack", "url": peer.url}}, "quiet_hours": always})
    box.start(standing({"inc-1", "inc-2"}))
    assert box.put(message(1, page=False, severity=Severity.WARNING))["chat"] > 0
    assert box.put(message(2))["chat"] == 0
    until(lambda: sent(store))
    assert [i.message.node for i in store.waiting("chat")] == ["n1"]
    assert [i.message.node for i in sent(store)] == ["n2"]


def test_what_nobody_takes_for_long_is_given_up_loudly(
    peer: Peer, outbox: Make, store: DeliveryStore, caplog: pytest.LogCaptureFixture
) -> None:
    peer.status = 404
    store.add([delivery(1, id="a@webhook-1", receiver="webhook-1", created_at=1.0)])
    box = outbox({"webhooks": [peer.url]})
    box.start(standing({"inc-1"}))
    until(lambda: [i for i in store.latest(9) if i.state is DeliveryState.ABANDONED])
    assert box.counts()["webhook-1"]["given_up"] == 1
    assert "given up after 1 attempt: 127.0.0.1" in caplog.text
    assert "secret" not in caplog.text


def test_what_is_told_is_forgotten_after_a_month_unless_somebody_waits_for_its_end(store: DeliveryStore) -> None:
    known = delivery(1, state=DeliveryState.SENT, created_at=1.0)
    over = msgspec.structs.replace(delivery(2, created_at=1.0), state=DeliveryState.SENT, settled=True)
    waits = delivery(3, created_at=1.0)
    store.add([known, over, waits])
    store.forget(2.0)
    assert sorted(i.id for i in store.latest(9)) == sorted([known.id, waits.id])


def test_what_a_receiver_asks_to_wait_is_waited(peer: Peer, outbox: Make, store: DeliveryStore) -> None:
    peer.status, peer.headers = 429, {"retry-after": "1000"}
    box = outbox({"webhooks": [peer.url]})
    box.start(standing({"inc-1", "inc-2"}))
    box.put(message(1))
    (first,) = until(lambda: [i for i in store.waiting("webhook-1") if i.attempts])
    assert first.due - first.claimed_at >= 1000
    box.put(message(2))
    box.stop()
    assert len(peer.got) == 1


def test_a_message_that_cannot_be_made_keeps_back_no_other(
    peer: Peer, outbox: Make, store: DeliveryStore, caplog: pytest.LogCaptureFixture
) -> None:
    broken = message(1, at=-1e18)  # no date has this time
    box = outbox({"receivers": {"am": {"kind": "alertmanager", "url": peer.url}}})
    box.start(standing({"inc-1", "inc-2"}))
    box.put(broken)
    until(lambda: [i for i in store.waiting("am") if i.attempts])
    box.put(message(2))
    until(lambda: sent(store))
    assert "internal error: " in store.waiting("am")[0].detail
    assert "please report it" in caplog.text


def test_messages_for_somebody_who_is_gone_are_not_silent(
    outbox: Make, store: DeliveryStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.add([delivery(1), delivery(2)])
    outbox({}).start(standing(set()))
    assert "2 messages wait for the receiver 'r', which is no longer configured" in caplog.text


def test_a_piece_keeps_its_name_and_its_messages_whatever_comes_later(
    peer: Peer, outbox: Make, store: DeliveryStore
) -> None:
    chat = {"receivers": {"chat": {"kind": "slack", "url": peer.url}}}
    peer.status = 500
    box = outbox(chat)
    box.start(standing({"inc-1", "inc-2"}))
    box.put(message(1))
    (first,) = until(lambda: [i for i in store.waiting("chat") if i.batch])
    box.stop()
    peer.status = 200
    again = outbox(chat)
    again.put(message(2))
    again.start(standing({"inc-1", "inc-2"}))
    until(lambda: len(sent(store)) == 2)
    batches = {item.message.incident: item.batch for item in sent(store)}
    assert batches["inc-1"] == first.batch != batches["inc-2"]

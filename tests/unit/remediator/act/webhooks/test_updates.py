"""A later message about the same matter: it stays one matter to every receiver, and its end is said of what it became."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from remediator.model.delivery import DeliveryState, NotificationMessage, NotificationPhase
from remediator.model.journal_records import Action
from remediator.notifications.alert_settings import AlertSettings
from remediator.notifications.delivery_worker import latest_per_matter
from remediator.notifications.follow_up_messages import build_follow_ups
from remediator.notifications.message_content import build_action_message
from remediator.notifications.message_outbox import MessageOutbox
from remediator.notifications.message_templates import render_message_texts
from remediator.notifications.slack import Slack
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import AT, Peer, delivery, message, resolved, standing, until

CHAT = Slack(url="https://chat.example/x")
GREW = "40 of 100 nodes failed within 12 s"


def update(number: int = 1) -> NotificationMessage:
    first = message(number)
    return msgspec.structs.replace(first, id=f"inc-{number}.d2.tells.alert", title=GREW, update=True)


def test_an_action_says_that_it_is_a_later_message() -> None:
    action = Action(
        id="inc-1.d2.tells.alert",
        incident="inc-1",
        decision="inc-1.d2",
        node="rack:r1",
        verb="alert",
        planned_at=AT,
        deadline=AT + 9,
        data={"how": "more", "severity": "error", "update": True},
    )
    assert build_action_message(action, None, (), None, AlertSettings(), "c").update is True
    first = msgspec.structs.replace(action, data={"how": "one"})
    assert build_action_message(first, None, (), None, AlertSettings(), "c").update is False


def test_the_title_says_that_it_is_one() -> None:
    title, _ = render_message_texts("", "", (delivery(1, message=update()),))
    assert title == f"update: fatal: n1: {GREW}"


def test_what_is_about_many_nodes_does_not_repeat_what_it_is_about() -> None:
    about = message(node="driver:570.1", title=GREW)
    title, _ = render_message_texts("", "", (delivery(1, message=about),))
    assert title == f"fatal: {GREW}"


def test_its_end_has_the_latest_title() -> None:
    told = [
        delivery(1, state=DeliveryState.SENT),
        delivery(1, id="inc-1.d2@r", message=update(), state=DeliveryState.SENT),
    ]
    end, *_ = build_follow_ups(told, CHAT, standing(set()), lambda at: at, AT)
    title, _ = render_message_texts("", "", (end,))
    assert title == f"resolved: fatal: n1: {GREW}"


def test_what_became_part_of_another_matter_is_not_called_resolved() -> None:
    told = [delivery(1, state=DeliveryState.SENT)]
    part = msgspec.structs.replace(standing({"inc-9"}), part_of=lambda incident: "inc-9" if incident == "inc-1" else "")
    end, *_ = build_follow_ups(told, CHAT, part, lambda at: at, AT)
    assert end.phase is NotificationPhase.RESOLVE
    assert end.message.part_of == "inc-9"
    title, _ = render_message_texts("", "", (end,))
    assert title == "now part of inc-9: fatal: n1: xid/79 on gpu 3"
    plainly, _ = render_message_texts("", "", (resolved(delivery(1)),))
    assert plainly.startswith("resolved: ")


def test_a_pager_takes_it_as_the_same_matter_even_where_the_first_was_one_of_many(
    peer: Peer, outbox: Callable[[dict[str, Any]], MessageOutbox], store: DeliveryStore, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 32)
    pager = {
        "kind": "pagerduty",
        "url": peer.url,
        "routing_key_file": str(tmp_path / "key"),
        "rate": {"messages": 1, "per_s": 0.001},
    }
    box = outbox({"receivers": {"p": pager}})
    for number in (1, 2, 3):
        box.put(message(number))
    box.start(standing({"inc-1", "inc-2", "inc-3"}))
    until(lambda: len(store.unresolved("p")) == 3)
    key = json.loads(peer.got[0][2])["dedup_key"]
    assert key.startswith("msg_")
    before = len(peer.got)
    box.put(update(2))
    until(lambda: len(peer.got) > before)
    event = json.loads(peer.got[-1][2])
    assert (event["event_action"], event["dedup_key"]) == ("trigger", key)
    assert GREW in event["payload"]["summary"]


def test_a_repetition_says_only_the_latest_of_a_matter() -> None:
    told = [delivery(1), delivery(2), delivery(1, id="later", message=update())]
    assert [item.id for item in latest_per_matter(told)] == [told[1].id, "later"]

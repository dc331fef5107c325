"""What follows the first message: taken up, over; and the sign of life."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remediator.model.delivery import DeliveryState, NotificationPhase
from remediator.model.journal_records import Incident
from remediator.notifications.follow_up_messages import NotificationContext, build_follow_ups, is_acknowledged
from remediator.notifications.message_outbox import MessageOutbox
from remediator.notifications.pagerduty import PagerDuty
from remediator.notifications.slack import Slack
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import AT, Peer, delivery, message, standing, until

SENT = DeliveryState.SENT
PAGER = PagerDuty(routing_key_file="/none")
CHAT = Slack(url="https://chat.example/x")


def at_once(at: float) -> float:
    return at


def test_nothing_follows_while_it_is_open_and_nobody_took_it_up() -> None:
    assert build_follow_ups([delivery(1, state=SENT)], PAGER, standing({"inc-1"}), at_once, AT) == []


def test_that_somebody_took_it_up_is_told_once_and_only_to_those_who_keep_it_open() -> None:
    told = [delivery(1, state=SENT)]
    new, changed = build_follow_ups(told, PAGER, standing({"inc-1"}, {"inc-1"}), at_once, AT)
    assert (new.phase, new.thread, changed.acknowledged) == (NotificationPhase.ACKNOWLEDGE, "inc-1", True)
    assert build_follow_ups([changed], PAGER, standing({"inc-1"}, {"inc-1"}), at_once, AT) == []
    assert build_follow_ups(told, CHAT, standing({"inc-1"}, {"inc-1"}), at_once, AT) == []


@pytest.mark.parametrize(
    ("changes", "taken"),
    [({}, False), ({"acknowledged_by": "ann", "acknowledged_at": AT}, True), ({"approved": ("inc-1.d1",)}, True)],
)
def test_who_acknowledges_or_approves_has_taken_it_up(changes: dict[str, Any], *, taken: bool) -> None:
    assert is_acknowledged(Incident(id="inc-1", node="n1", title="t", opened_at=AT, **changes)) is taken
    assert not is_acknowledged(None)


def test_one_matter_is_resolved_once_when_all_of_it_is_over() -> None:
    told = [delivery(n, state=SENT, thread="msg_sum") for n in (1, 2)]
    assert build_follow_ups(told, PAGER, standing({"inc-2"}), at_once, AT) == []
    new, *changed = build_follow_ups(told, PAGER, standing(set()), at_once, AT)
    assert (new.phase, new.thread) == (NotificationPhase.RESOLVE, "msg_sum")
    assert all(item.settled for item in changed)
    again = build_follow_ups(told, PAGER, standing(set()), at_once, AT + 9)[0]
    assert again.id == new.id  # a crash before it was written names the same


def test_an_end_waits_for_the_morning_unless_people_were_woken() -> None:
    quiet = [delivery(1, state=SENT, message=message(1, page=False))]
    assert build_follow_ups(quiet, CHAT, standing(set()), lambda at: at + 99, AT)[0].due == AT + 99
    woken = [delivery(1, state=SENT)]
    assert build_follow_ups(woken, CHAT, standing(set()), lambda at: at + 99, AT)[0].due == AT


def test_a_pager_hears_the_whole_story(
    peer: Peer, outbox: Callable[[dict[str, Any]], MessageOutbox], store: DeliveryStore, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 32)
    open_ones, taken_up = {"inc-1"}, set[str]()
    box = outbox(
        {"receivers": {"p": {"kind": "pagerduty", "url": peer.url, "routing_key_file": str(tmp_path / "key")}}}
    )
    box.start(standing(open_ones, taken_up))

    def events() -> list[tuple[str, str]]:
        return [(e["event_action"], e["dedup_key"]) for e in (json.loads(body) for _, _, body in peer.got)]

    box.put(message(1))
    until(lambda: len(events()) == 1)
    taken_up.add("inc-1")
    until(lambda: len(events()) == 2)
    open_ones.clear()
    until(lambda: len(events()) == 3)
    assert events() == [("trigger", "inc-1"), ("acknowledge", "inc-1"), ("resolve", "inc-1")]


def test_too_many_for_a_pager_are_one_matter_that_ends_with_the_last_of_them(
    peer: Peer, outbox: Callable[[dict[str, Any]], MessageOutbox], store: DeliveryStore, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 32)
    pager = {"kind": "pagerduty", "url": peer.url, "routing_key_file": str(tmp_path / "key"), "rate": {"messages": 2}}
    open_ones = {f"inc-{n}" for n in range(5)}
    box = outbox({"receivers": {"p": pager}})
    for n in range(5):
        box.put(message(n))
    box.start(standing(open_ones))
    until(lambda: len(peer.got) == 2)
    until(lambda: len(store.unresolved("p")) == 5)
    summed = [item for item in store.unresolved("p") if item.thread.startswith("msg_")]
    assert len(summed) == 4
    open_ones.difference_update({item.message.incident for item in summed})
    until(lambda: len(peer.got) == 3)
    end = json.loads(peer.got[2][2])
    assert (end["event_action"], end["dedup_key"]) == ("resolve", summed[0].thread)


def test_the_sign_of_life_stops_when_we_no_longer_decide(
    peer: Peer, outbox: Callable[[dict[str, Any]], MessageOutbox]
) -> None:
    leads = [True]
    lively = msgspec.structs.replace(standing(set()), leads=lambda: leads[0])
    assert isinstance(lively, NotificationContext)
    box = outbox({"heartbeat": {"url": peer.url, "every_s": 1}})
    box.start(lively)
    until(lambda: len(peer.got) >= 2)
    leads[0] = False
    box._stopping.set()
    box._beating.join(60)
    before = len(peer.got)
    second = outbox({"heartbeat": {"url": peer.url, "every_s": 1}, "webhooks": [peer.url]})
    second.put(message(1))
    second.start(lively)
    second.stop()
    assert len(peer.got) == before

"""Grouping and rate limits as pure functions, over any traffic."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.model.delivery import Delivery, NotificationPhase
from remediator.notifications.delivery_pacing import (
    BatchingMode,
    DeliveryPacing,
    RateLimit,
    is_due,
    plan_deliveries,
    retry_delay_s,
)
from tests.unit.remediator.act.webhooks.peer import AT, delivery, message

paces = st.builds(
    DeliveryPacing,
    rate=st.builds(RateLimit, messages=st.integers(1, 4), per_s=st.sampled_from([5.0, 30.0])),
    together=st.sampled_from(BatchingMode),
    life_cycle=st.booleans(),
    apart=st.booleans(),
)
arrivals = st.lists(
    st.tuples(
        st.integers(0, 60),  # when
        st.integers(1, 4),  # incident
        st.sampled_from(NotificationPhase),
        st.booleans(),  # page
        st.sampled_from([0, 0, 10, 40]),  # its window
        st.sampled_from([0, 0, 0, 50]),  # quiet hours
    ),
    max_size=25,
)


def made(traffic: list[tuple[int, int, NotificationPhase, bool, int, int]]) -> list[Delivery]:
    items = []
    for number, (at, incident, phase, page, window, quiet) in enumerate(traffic):
        created = AT + at
        not_before = created + quiet if quiet and not page else 0.0
        due = created if page else max(not_before, created + window)
        items.append(
            delivery(
                incident,
                id=f"{number}",
                message=message(incident, page=page),
                phase=phase,
                created_at=created,
                not_before=not_before,
                due=due,
            )
        )
    return items


def run(items: list[Delivery], pace: DeliveryPacing) -> list[tuple[float, tuple[Delivery, ...]]]:
    """What a courier does, on a clock of its own: look when something comes, and when the plan says so."""
    looks = sorted({item.created_at for item in items})
    waiting: dict[str, Delivery] = {}
    sent: list[tuple[float, tuple[Delivery, ...]]] = []
    steps = 0
    while looks:
        now = heapq.heappop(looks)
        steps += 1
        assert steps < 1000, "it never comes to an end"
        done = {item.id for _, piece in sent for item in piece}
        waiting = {item.id: item for item in items if item.created_at <= now and item.id not in done}
        begun = [at for at, piece in sent if not pace.life_cycle or piece[0].phase is NotificationPhase.FIRE]
        found = plan_deliveries(list(waiting.values()), begun, pace, now)
        sent.extend((now, piece) for piece in found.pieces)
        if found.wake is not None:
            assert found.wake > now, "it would look again and again"
            if found.wake not in looks:
                heapq.heappush(looks, found.wake)
    return sent


@given(arrivals, paces)
def test_everything_is_sent_exactly_once_and_never_too_early(
    traffic: list[tuple[int, int, NotificationPhase, bool, int, int]], pace: DeliveryPacing
) -> None:
    items = made(traffic)
    sent = run(items, pace)
    assert sorted(item.id for _, piece in sent for item in piece) == sorted(item.id for item in items)
    for at, piece in sent:
        assert all(item.not_before <= at and item.created_at <= at for item in piece)
        assert any(item.due <= at for item in piece)


@given(arrivals, paces)
def test_no_window_ever_holds_more_than_the_rate_allows(
    traffic: list[tuple[int, int, NotificationPhase, bool, int, int]], pace: DeliveryPacing
) -> None:
    sent = run(made(traffic), pace)
    counted = [at for at, piece in sent if not pace.life_cycle or piece[0].phase is NotificationPhase.FIRE]
    for end in counted:
        assert sum(end - pace.rate.per_s < at <= end for at in counted) <= pace.rate.messages


@given(arrivals, paces)
def test_one_that_wakes_people_waits_for_room_only(
    traffic: list[tuple[int, int, NotificationPhase, bool, int, int]], pace: DeliveryPacing
) -> None:
    sent = run(made(traffic), pace)
    counted = sorted(at for at, piece in sent if not pace.life_cycle or piece[0].phase is NotificationPhase.FIRE)
    for at, piece in sent:
        for item in piece:
            if item.message.page and at > item.created_at:
                full = [one for one in counted if item.created_at - pace.rate.per_s < one <= item.created_at]
                assert len(full) >= pace.rate.messages


@given(arrivals, paces)
def test_a_matter_that_a_receiver_keeps_is_never_mixed_with_its_end(
    traffic: list[tuple[int, int, NotificationPhase, bool, int, int]], pace: DeliveryPacing
) -> None:
    for _, piece in run(made(traffic), pace):
        if pace.life_cycle and pace.together is BatchingMode.INCIDENT and len({i.message.incident for i in piece}) > 1:
            assert {item.phase for item in piece} == {NotificationPhase.FIRE}


@given(arrivals, paces)
def test_two_incidents_go_in_one_piece_only_where_the_receiver_takes_that(
    traffic: list[tuple[int, int, NotificationPhase, bool, int, int]], pace: DeliveryPacing
) -> None:
    for _, piece in run(made(traffic), replace(pace, apart=True, together=BatchingMode.INCIDENT)):
        assert len({item.message.incident for item in piece}) == 1


def test_what_may_not_be_summed_up_waits_for_room_however_long() -> None:
    tickets = [delivery(n, id=str(n), created_at=AT + n, due=AT) for n in range(5)]
    pace = DeliveryPacing(RateLimit(messages=2, per_s=60), BatchingMode.INCIDENT, apart=True)
    found = plan_deliveries(tickets, [AT - 10], pace, AT + 5)
    assert [[item.id for item in piece] for piece in found.pieces] == [["0"]]
    assert found.wake == AT + 50, "when the older of the two places is free again"


def test_a_burst_is_one_message_and_what_is_too_much_is_summed_up() -> None:
    burst = [delivery(n, id=str(n), due=AT + 10, message=message(n, page=False)) for n in range(30)]
    assert plan_deliveries(burst, [], DeliveryPacing(RateLimit(), BatchingMode.BURST), AT + 5).pieces == ()
    (piece,) = plan_deliveries(burst, [], DeliveryPacing(RateLimit(), BatchingMode.BURST), AT + 10).pieces
    assert len(piece) == 30
    limited = plan_deliveries(
        burst, [AT], DeliveryPacing(RateLimit(messages=4, per_s=60), BatchingMode.INCIDENT), AT + 10
    )
    assert [len(piece) for piece in limited.pieces] == [1, 1, 28]
    nothing = plan_deliveries(
        burst, [AT, AT + 1], DeliveryPacing(RateLimit(messages=2, per_s=60), BatchingMode.INCIDENT), AT + 10
    )
    assert (nothing.pieces, nothing.wake) == ((), AT + 60)


@given(
    attempts=st.integers(1, 10_000),
    retry_after_s=st.one_of(st.none(), st.floats(0, 1e12)),
    key=st.text(max_size=9),
    refused=st.booleans(),
)
def test_the_wait_is_bounded_and_honours_the_receiver(
    *, attempts: int, retry_after_s: float | None, key: str, refused: bool
) -> None:
    wait = retry_delay_s(attempts, retry_after_s, key, refused=refused)
    assert 1 <= wait <= 3600 * 1.2
    if retry_after_s is not None:
        assert wait >= min(retry_after_s, 3600)


@pytest.mark.parametrize(("refused", "first"), [(False, 1.0), (True, 60.0)])
def test_the_wait_doubles(*, refused: bool, first: float) -> None:
    waits = [retry_delay_s(n, None, "k", refused=refused) for n in (1, 2, 3)]
    assert all(first * 2**n <= wait <= first * 2**n * 1.2 for n, wait in enumerate(waits))


def test_a_clock_that_is_set_back_holds_nothing_up_for_long() -> None:
    later = [delivery(1, created_at=AT + 86400, due=AT + 86400)]
    pace = DeliveryPacing(RateLimit(messages=1), BatchingMode.NOTHING)
    assert plan_deliveries(later, [AT + 86400], pace, AT).pieces == (tuple(later),)
    begun = delivery(1, batch="msg_a", due=AT + 86400)
    assert is_due(begun, AT)
    assert not is_due(delivery(1, batch="msg_a", due=AT + 3600), AT)
    quiet = delivery(1, due=AT + 86400, message=message(1, page=False))
    assert not is_due(quiet, AT)

"""What a receiver must hear after the first message: that somebody took the matter up, and that it is over. Pure.

Level, not edge: it is derived from what the receiver was told and what is still open, so that no crash can lose it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from remediator.model.delivery import Delivery, NotificationPhase
from remediator.model.journal_records import Incident
from remediator.model.override_records import AlertSilence
from remediator.notifications.receiver_registry import AnyReceiver


class NotificationContext(msgspec.Struct, frozen=True):
    """What the centre knows now: whether an incident is open or taken up, whether we lead and decide, what is silenced.

    `part_of`: the open incident that one which has ended is a part of, by id.
    """

    epoch: Callable[[], int]
    is_open: Callable[[str], bool]
    is_taken_up: Callable[[str], bool]
    leads: Callable[[], bool]
    part_of: Callable[[str], str] = lambda _incident: ""
    silence_of: Callable[[Delivery], AlertSilence | None] = lambda _item: None  # what keeps it from being told now


def is_acknowledged(incident: Incident | None) -> bool:
    """Whether a person looks after it: somebody said so, or agreed to a step of its plan."""
    return incident is not None and bool(incident.acknowledged_by or incident.approved)


def build_follow_ups(
    told: Sequence[Delivery],
    receiver: AnyReceiver,
    standing: NotificationContext,
    quiet_until: Callable[[float], float],
    now: float,
) -> list[Delivery]:
    """New deliveries, and the told ones as changed by them; to be written in one piece."""
    threads: dict[str, list[Delivery]] = {}
    for item in told:
        threads.setdefault(item.thread, []).append(item)
    changed: list[Delivery] = []
    for items in threads.values():
        incidents = {item.message.incident for item in items}
        if not any(standing.is_open(incident) for incident in incidents):
            page = any(item.message.page for item in items)
            waits = now if page or not receiver.quiet_hours else quiet_until(now)
            above = next(filter(None, map(standing.part_of, sorted(incidents))), "")
            changed.append(_next_phase_delivery(items, NotificationPhase.RESOLVE, now, waits, above))
            changed.extend(replace(item, settled=True) for item in items)
        elif _deliveries_to_acknowledge(items, receiver) and any(
            standing.is_taken_up(incident) for incident in incidents
        ):
            changed.append(_next_phase_delivery(items, NotificationPhase.ACKNOWLEDGE, now, now))
            changed.extend(replace(item, acknowledged=True) for item in items)
    return changed


def _deliveries_to_acknowledge(items: Sequence[Delivery], receiver: AnyReceiver) -> bool:
    return receiver.LIFE_CYCLE and not any(item.acknowledged for item in items)


def _next_phase_delivery(
    items: Sequence[Delivery], phase: NotificationPhase, now: float, not_before: float, part_of: str = ""
) -> Delivery:
    """The same matter, one phase on, under its latest title. Its id follows from the last message's: a repetition has the same."""
    first, last = items[0], items[-1]
    latest = [item.message.title for item in items if item.message.incident == first.message.incident]
    return Delivery(
        id=f"{last.id}!{phase.value}",
        receiver=first.receiver,
        message=replace(first.message, id=f"{last.message.id}!{phase.value}", title=latest[-1], part_of=part_of),
        phase=phase,
        created_at=now,
        not_before=not_before,
        due=not_before,
        thread=first.thread,
    )

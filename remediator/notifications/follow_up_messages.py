"""Follow-up messages of an alert: acknowledged and resolved. Pure.

Level-triggered: derived from what the receiver got and what is still open, so that no crash can lose one.
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
    """What the controller knows now: open and acknowledged incidents, whether it leads and decides, silences.

    `part_of`: the open incident that absorbed a closed one, by id.
    """

    epoch: Callable[[], int]
    is_open: Callable[[str], bool]
    is_taken_up: Callable[[str], bool]
    leads: Callable[[], bool]
    part_of: Callable[[str], str] = lambda _incident: ""
    silence_of: Callable[[Delivery], AlertSilence | None] = lambda _item: None  # the silence that mutes it now


def is_acknowledged(incident: Incident | None) -> bool:
    """Return whether an operator acknowledged it, or approved a step of its plan."""
    return incident is not None and bool(incident.acknowledged_by or incident.approved)


def build_follow_ups(
    told: Sequence[Delivery],
    receiver: AnyReceiver,
    context: NotificationContext,
    quiet_until: Callable[[float], float],
    now: float,
) -> list[Delivery]:
    """Return new deliveries and updated ones, to be written together."""
    threads: dict[str, list[Delivery]] = {}
    for item in told:
        threads.setdefault(item.thread, []).append(item)
    changed: list[Delivery] = []
    for items in threads.values():
        incidents = {item.message.incident for item in items}
        if not any(context.is_open(incident) for incident in incidents):
            page = any(item.message.page for item in items)
            waits = now if page or not receiver.quiet_hours else quiet_until(now)
            above = next(filter(None, map(context.part_of, sorted(incidents))), "")
            changed.append(_next_phase_delivery(items, NotificationPhase.RESOLVE, now, waits, above))
            changed.extend(replace(item, settled=True) for item in items)
        elif _deliveries_to_acknowledge(items, receiver) and any(
            context.is_taken_up(incident) for incident in incidents
        ):
            changed.append(_next_phase_delivery(items, NotificationPhase.ACKNOWLEDGE, now, now))
            changed.extend(replace(item, acknowledged=True) for item in items)
    return changed


def _deliveries_to_acknowledge(items: Sequence[Delivery], receiver: AnyReceiver) -> bool:
    return receiver.LIFE_CYCLE and not any(item.acknowledged for item in items)


def _next_phase_delivery(
    items: Sequence[Delivery], phase: NotificationPhase, now: float, not_before: float, part_of: str = ""
) -> Delivery:
    """Build the next phase under the latest title.

    Its id is derived from the last message's, so a repetition has the same.
    """
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

"""Selects which messages go to one receiver now: `(fresh, start times of batches, pacing, now) → batches, next check`.

Pure. No message is dropped: what exceeds the rate waits, and goes as one batch as soon as the rate allows.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence
from typing import Annotated

import msgspec

from remediator.model.delivery import Delivery, NotificationPhase

RETRY_FIRST_S = 1.0
RETRY_MAX_S = 300.0
REFUSED_FIRST_S = 60.0
REFUSED_MAX_S = 3600.0
RETRY_AFTER_MAX_S = 3600.0
LATER_MAX_S = 2 * 3600.0


class BatchingMode(str, enum.Enum):
    """What goes in one batch: all waiting messages, those of one incident, or one message."""

    BURST = "burst"
    INCIDENT = "incident"
    NOTHING = "nothing"


class RateLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most so many messages within so many seconds."""

    messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10  # messages
    per_s: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 60.0  # seconds


class DeliveryPacing(msgspec.Struct, frozen=True):
    """One receiver's pacing. `life_cycle`: it keeps each alert open until it is resolved.

    `apart`: messages of different batches are never combined, however low the rate.
    """

    rate: RateLimit
    together: BatchingMode
    life_cycle: bool = False
    apart: bool = False


class DeliveryPlan(msgspec.Struct, frozen=True):
    """What to send now, and when to check again (UTC seconds; None: on the next message)."""

    pieces: tuple[tuple[Delivery, ...], ...]
    wake: float | None


def plan_deliveries(
    fresh: Sequence[Delivery], begun: Sequence[float], pace: DeliveryPacing, now: float
) -> DeliveryPlan:
    """Choose what to send now. `begun` are the start times of earlier batches that count against the rate."""
    groups = _group_deliveries(fresh, pace, now)
    wakes = [item.due for item in fresh if item.due > now]
    counted = {key: group for key, group in groups.items() if counts_against_rate(group, pace)}
    free = [tuple(group) for key, group in groups.items() if key not in counted]
    in_window = sorted(at for at in begun if now - pace.rate.per_s < at <= now)  # later ones: the clock was set back
    slots = max(0, pace.rate.messages - len(in_window))
    order = sorted(counted.values(), key=lambda group: (not any(i.message.page for i in group), _age_key(group[0])))
    pieces = [tuple(group) for group in order[:slots]]
    too_many = order[slots:]
    if too_many and slots and not pace.apart:
        pieces[-1] = tuple(sorted((item for group in order[slots - 1 :] for item in group), key=_age_key))
    elif too_many:
        wakes.append([*in_window, *[now] * slots][-pace.rate.messages] + pace.rate.per_s)
    sent = {item.id for piece in (*free, *pieces) for item in piece}
    left = [item for item in fresh if item.id not in sent]
    return DeliveryPlan((*free, *pieces), min(wakes, default=None) if left else None)


def _group_deliveries(fresh: Sequence[Delivery], pace: DeliveryPacing, now: float) -> dict[str, list[Delivery]]:
    """Group messages that may share a batch.

    A group is due when one of its messages is, and includes all that may be sent.
    """
    groups: dict[str, list[Delivery]] = {}
    for item in sorted(fresh, key=_age_key):
        if item.not_before <= now:
            groups.setdefault(_group_key(item, pace), []).append(item)
    return {key: group for key, group in groups.items() if any(is_due(item, now) for item in group)}


def is_due(item: Delivery, now: float) -> bool:
    """Return whether it is due. A time further off than any delay of ours means that the clock was set back."""
    later = item.due - now
    return later <= 0 or (later > LATER_MAX_S if item.batch else item.message.page)


def _group_key(item: Delivery, pace: DeliveryPacing) -> str:
    if pace.together is BatchingMode.BURST:
        return ""
    if pace.together is BatchingMode.INCIDENT:
        return f"{item.phase.value} {item.thread or item.message.incident}"
    return item.id


def counts_against_rate(piece: Sequence[Delivery], pace: DeliveryPacing) -> bool:
    """Return whether a batch counts against the rate.

    An acknowledgement or a resolution pages no person at a receiver with a life cycle, and cannot be combined into one
    message.
    """
    return not pace.life_cycle or piece[0].phase is NotificationPhase.FIRE


def _age_key(item: Delivery) -> tuple[float, str]:
    return (item.created_at, item.id)


def retry_delay_s(attempts: int, retry_after_s: float | None, key: str, *, refused: bool) -> float:
    """Return the seconds to the next attempt after the `attempts`-th: doubled each time, with jitter by key.

    The receiver's Retry-After counts, up to an hour.
    """
    first, most = (REFUSED_FIRST_S, REFUSED_MAX_S) if refused else (RETRY_FIRST_S, RETRY_MAX_S)
    own = min(first * 2.0 ** min(attempts - 1, 20), most) * (1 + zlib.crc32(f"{key}{attempts}".encode()) % 100 / 500)
    return own if retry_after_s is None else max(own, min(retry_after_s, RETRY_AFTER_MAX_S))

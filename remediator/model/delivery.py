"""Notifications and their delivery: one message for many receivers, one delivery for each of them."""

from __future__ import annotations

import enum

import msgspec

from vocabulary.finding import Severity


class NotificationMessage(msgspec.Struct, frozen=True, omit_defaults=False):
    """The message for receivers and hooks. `id` is the same for a repetition; `at` is UTC seconds; `page` wakes people.

    `update`: an earlier message was about the same incident, which has grown. `part_of`: the open incident that
    absorbed this one, which has ended.
    """

    id: str
    kind: str
    cluster: str
    node: str
    incident: str
    title: str
    rule: str
    text: str
    injected: bool
    severity: Severity = Severity.UNCLASSIFIED
    at: float = 0.0
    page: bool = False
    link: str = ""
    labels: dict[str, str] = {}
    update: bool = False
    part_of: str = ""


class LeadershipLost(Exception):
    """Another leader works on this database: this one must stop sending."""


class NotificationPhase(str, enum.Enum):
    """The phase of an incident for its receivers."""

    FIRE = "fire"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


class DeliveryState(str, enum.Enum):
    """WAITING: to be sent or retried. The others are final."""

    WAITING = "waiting"
    SENT = "sent"
    ABANDONED = "abandoned"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one receiver. Times are UTC seconds.

    `batch` identifies what is sent together, and is durable before the first attempt: a repetition has the same.
    `thread` identifies the receiver's alert from its first message to its resolution.
    """

    id: str
    receiver: str
    message: NotificationMessage
    phase: NotificationPhase = NotificationPhase.FIRE
    state: DeliveryState = DeliveryState.WAITING
    created_at: float
    not_before: float = 0.0  # quiet hours
    free_at: float = 0.0  # the end of a silence that muted it
    due: float = 0.0  # the end of its window, or the next attempt
    batch: str = ""
    claimed_at: float = 0.0
    thread: str = ""
    attempts: int = 0
    sent_at: float | None = None
    detail: str = ""
    acknowledged: bool = False  # the receiver got the acknowledgement
    settled: bool = False  # nothing more is to be sent about it
    kinds: tuple[str, ...] = ()  # of its findings, which a silence may name

    @property
    def tellable_at(self) -> float:
        """Since when it could be sent: no quiet hours, no silence."""
        return max(self.created_at, self.not_before, self.free_at)

    @property
    def told(self) -> bool:
        """Whether the receiver got it and must get its end."""
        return self.phase is NotificationPhase.FIRE and self.state is DeliveryState.SENT and not self.settled

"""What people are told, and how far the telling is: one message for many receivers, one delivery for each of them."""

from __future__ import annotations

import enum

import msgspec

from vocabulary.finding import Severity


class NotificationMessage(msgspec.Struct, frozen=True, omit_defaults=False):
    """What receivers and hooks are told. `id` is the same for a repetition; `at` is UTC seconds; `page` wakes people.

    `update`: an earlier message was about the same incident, which has grown. `part_of`: the open incident that this one,
    which has ended, is a part of.
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
    """Another leader works on this database: this one must send nothing any more."""


class NotificationPhase(str, enum.Enum):
    """Where an incident stands for those who are told of it."""

    FIRE = "fire"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


class DeliveryState(str, enum.Enum):
    """WAITING: to be sent, or tried again. The others are final."""

    WAITING = "waiting"
    SENT = "sent"
    ABANDONED = "abandoned"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message on its way to one receiver. Times are UTC seconds.

    `batch` names what is sent in one piece, and is on the disk before the first attempt: a repetition carries the same
    name. `thread` names what the receiver takes as one matter from its first message to its resolution.
    """

    id: str
    receiver: str
    message: NotificationMessage
    phase: NotificationPhase = NotificationPhase.FIRE
    state: DeliveryState = DeliveryState.WAITING
    created_at: float
    not_before: float = 0.0  # quiet hours
    free_at: float = 0.0  # the end of a silence that kept it back
    due: float = 0.0  # the end of its window, or the next attempt
    batch: str = ""
    claimed_at: float = 0.0
    thread: str = ""
    attempts: int = 0
    sent_at: float | None = None
    detail: str = ""
    acknowledged: bool = False  # the receiver was told that somebody has taken it up
    settled: bool = False  # nothing more is to be said about it
    kinds: tuple[str, ...] = ()  # of the findings that it is about, which a silence may name

    @property
    def tellable_at(self) -> float:
        """Since when people could have been told of it: neither quiet hours nor a silence keep it back."""
        return max(self.created_at, self.not_before, self.free_at)

    @property
    def told(self) -> bool:
        """Whether the receiver knows of it and must hear how it ends."""
        return self.phase is NotificationPhase.FIRE and self.state is DeliveryState.SENT and not self.settled

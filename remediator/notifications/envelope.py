"""A batch of messages for one receiver, and the result of sending it."""

from __future__ import annotations

import msgspec

from remediator.model.delivery import Delivery, NotificationMessage, NotificationPhase
from vocabulary.finding import Severity


class Envelope(msgspec.Struct, frozen=True):
    """One or more deliveries to one receiver, with their text. A retry has the same `id` and content, except `now`."""

    id: str
    items: tuple[Delivery, ...]
    title: str
    text: str
    now: float

    @property
    def first(self) -> NotificationMessage:
        """The oldest message."""
        return self.items[0].message

    @property
    def phase(self) -> NotificationPhase:
        """FIRE as long as one of them is new."""
        phases = {item.phase for item in self.items}
        return NotificationPhase.FIRE if NotificationPhase.FIRE in phases else self.items[0].phase

    @property
    def thread(self) -> str:
        """The receiver's key for the alert."""
        return self.items[0].thread

    @property
    def severity(self) -> Severity:
        """The highest severity."""
        return max((item.message.severity for item in self.items), key=lambda severity: severity.rank)


class DeliveryAnswer(msgspec.Struct, frozen=True):
    """The result of one attempt, without secrets. `down`: other messages would fail as well now."""

    taken: bool
    words: str
    retry_after_s: float | None = None
    down: bool = False
    refused: bool = False  # permanently: a retry fails until something is changed there

"""What goes to a receiver in one piece, and what came of it."""

from __future__ import annotations

import msgspec

from remediator.model.delivery import Delivery, NotificationMessage, NotificationPhase
from vocabulary.finding import Severity


class Envelope(msgspec.Struct, frozen=True):
    """One or many deliveries to one receiver, with their words. `id` and everything but `now` is the same for a repetition."""

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
        """The matter, as the receiver knows it."""
        return self.items[0].thread

    @property
    def severity(self) -> Severity:
        """The gravest."""
        return max((item.message.severity for item in self.items), key=lambda severity: severity.rank)


class DeliveryAnswer(msgspec.Struct, frozen=True):
    """What became of one attempt, in words that hold no secret. `down`: others would fare no better now."""

    taken: bool
    words: str
    retry_after_s: float | None = None
    down: bool = False
    refused: bool = False  # it answered, and will say the same again until somebody changes something

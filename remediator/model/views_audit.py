"""API views of the audit log. Times are UTC seconds."""

from __future__ import annotations

import msgspec

from remediator.model.views import EventView


class AuditView(msgspec.Struct, frozen=True):
    """`GET /v1/audit`, newest first.

    `looked_to` is the `before` of the next page, 0 at the end. `head` is the number of the log's last event and `hash`
    its seal: it covers all events before, which `remediator audit verify` checks.
    """

    at: float
    events: tuple[EventView, ...]
    looked_to: int
    head: int
    hash: str

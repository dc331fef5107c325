"""The audit log asked backwards, as the API answers it. Times are UTC seconds."""

from __future__ import annotations

import msgspec

from remediator.model.views import EventView


class AuditView(msgspec.Struct, frozen=True):
    """`GET /v1/audit`, newest first.

    `looked_to` is the `before` with which to go on, 0 where nothing is older. `head` is the number of the log's last line and
    `hash` its seal: it rests on every line before, `remediator audit verify` walks along them.
    """

    at: float
    events: tuple[EventView, ...]
    looked_to: int
    head: int
    hash: str

"""API views of notifications and silences. Times are UTC seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from remediator.model.views import MOMENT_MAX, Name

Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class AlertView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message to one receiver: `state` is waiting, silenced, sent or abandoned; `error` is the last attempt's."""

    id: str
    receiver: str
    kind: str
    state: str
    title: str
    at: float
    due: float
    node: str = ""
    incident: str = ""
    severity: str = ""
    page: bool = False
    phase: str = "fire"
    sent_at: float | None = None
    attempts: int = 0
    error: str = ""


class AlertList(msgspec.Struct, frozen=True):
    """`GET /v1/alerts`, newest first."""

    alerts: tuple[AlertView, ...]


class SilenceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/alerts/silences`: mutes nodes that match `match` and findings that all match `kinds`, until `until`.

    Both are shell patterns, over the node's name and over ``check/code``.
    """

    until: Annotated[float, msgspec.Meta(gt=0, le=MOMENT_MAX)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    match: Pattern = "*"
    kinds: Pattern = "*"


class SilenceView(msgspec.Struct, frozen=True):
    """A silence that has not ended."""

    id: str
    match: str
    kinds: str
    since: float
    until: float
    by: str
    text: str


class SilenceList(msgspec.Struct, frozen=True):
    """`GET /v1/alerts/silences`, the first to end first."""

    silences: tuple[SilenceView, ...]


class AlertTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/alerts/test`: the receiver's name."""

    receiver: Name


class AlertTested(msgspec.Struct, frozen=True):
    """Whether the receiver accepted the test message, and its answer."""

    receiver: str
    taken: bool
    words: str

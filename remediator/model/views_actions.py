"""What is done and what keeps it from being done, as the API answers it: actions, approvals, the mode, the breaker."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from remediator.model.views import ActionView

Reason = Annotated[str, msgspec.Meta(max_length=2000)]


class ActionList(msgspec.Struct, frozen=True):
    """`GET /v1/actions`, newest first."""

    actions: tuple[ActionView, ...]


class AwaitingView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that waits for a person's word: `what` is the id to approve, `since` when it was decided (UTC s).

    `proposed` are the steps that will be done then: stages in turn, the steps of one side by side.
    """

    incident: str
    node: str
    what: str
    text: str
    since: float
    title: str
    proposed: tuple[tuple[str, ...], ...] = ()


class AwaitingList(msgspec.Struct, frozen=True):
    """`GET /v1/awaiting`, what has waited longest first."""

    awaiting: tuple[AwaitingView, ...]


class ModeWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/mode`: how far automation may go from now on, and why; an empty mode is what the configuration says."""

    mode: Literal["observe", "recommend", "approve", "act", ""]
    text: Reason = ""


class BreakerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """`GET /v1/breaker`. `limits` are the guards of the budget with their figures as of `at`; times are UTC seconds."""

    open: bool
    at: float
    limits: tuple[str, ...]
    since: float | None = None
    why: str = ""
    incident: str = ""
    last_reset: float | None = None
    last_reset_by: str = ""

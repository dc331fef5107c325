"""API views of actions, approvals, the mode and the breaker."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from remediator.model.views import ActionView

Reason = Annotated[str, msgspec.Meta(max_length=2000)]


class ActionList(msgspec.Struct, frozen=True):
    """`GET /v1/actions`, newest first."""

    actions: tuple[ActionView, ...]


class AwaitingView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that awaits approval: `what` is the id to approve, `since` when it was decided (UTC s).

    `proposed` are the steps that follow: stages in sequence, the steps of one side by side.
    """

    incident: str
    node: str
    what: str
    text: str
    since: float
    title: str
    proposed: tuple[tuple[str, ...], ...] = ()


class AwaitingList(msgspec.Struct, frozen=True):
    """`GET /v1/awaiting`, the longest wait first."""

    awaiting: tuple[AwaitingView, ...]


class ModeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/mode`: the automation mode and the reason; an empty mode is the configured one."""

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

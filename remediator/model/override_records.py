"""Operator overrides for the whole cluster, in force until changed or for a time. Times are UTC seconds."""

from __future__ import annotations

import msgspec

from remediator.model.plan_steps import Mode

MODE = "mode"  # key of the mode; a silence's key is its id


class ModeOverride(msgspec.Struct, frozen=True, omit_defaults=True, tag="mode"):
    """The automation mode, whatever the configuration says."""

    mode: Mode
    actor: str
    since: float
    why: str = ""


class AlertSilence(msgspec.Struct, frozen=True, tag="silence"):
    """Mutes nodes that match `match` and findings that all match `kinds` (shell patterns), until `until`."""

    id: str
    match: str
    kinds: str
    since: float
    until: float
    actor: str
    why: str


OperatorOverride = ModeOverride | AlertSilence

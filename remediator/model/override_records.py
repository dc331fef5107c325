"""What a person said of the whole cluster that counts until somebody says otherwise, or for a time. Times are UTC seconds."""

from __future__ import annotations

import msgspec

from remediator.model.plan_steps import Mode

MODE = "mode"  # under which the mode stands; a silence stands under its id


class ModeOverride(msgspec.Struct, frozen=True, omit_defaults=True, tag="mode"):
    """The mode is this, whatever the configuration says."""

    mode: Mode
    actor: str
    since: float
    why: str = ""


class AlertSilence(msgspec.Struct, frozen=True, tag="silence"):
    """Nobody is told of nodes that fit `match` and findings that all fit `kinds`, shell patterns both, until `until`."""

    id: str
    match: str
    kinds: str
    since: float
    until: float
    actor: str
    why: str


Standing = ModeOverride | AlertSilence

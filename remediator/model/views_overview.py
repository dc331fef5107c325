"""What one look at the cluster asks for, in one answer: bounded, with what is left out counted."""

from __future__ import annotations

import msgspec

from remediator.model.views import IncidentView, NodeView, StatusView
from remediator.model.views_actions import AwaitingView


class NamedNodes(msgspec.Struct, frozen=True):
    """So many nodes; `names` are the first of them by name."""

    count: int = 0
    names: tuple[str, ...] = ()


class HeardView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of how many nodes of the cluster the last report is as young as it promised to be, and how old the oldest is (UTC s).

    `never`: this leader has not heard them at all; what is told of them is from before its time.
    """

    nodes: int = 0
    fresh: int = 0
    never: int = 0
    oldest_at: float | None = None


class SilencedView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many silences there are, and when the first ends (UTC s)."""

    count: int = 0
    ends: float | None = None


class ToldIncident(IncidentView, frozen=True, omit_defaults=True):
    """An open incident with what matters now: its last decision, live findings, and actions that have ended, the weightiest first.

    `findings_more` and `actions_more` count those that are left out for their number.
    """

    findings_more: int = 0
    actions_more: int = 0


class OverviewView(StatusView, frozen=True, omit_defaults=True):
    """`GET /v1/overview`: the status, and what is asked next. Lists are cut; `…_more` counts what is left out.

    `incidents` are open, the worst first; `nodes` are theirs, without GPUs, ranks and findings. `blocked` is the status's, with what
    only one incident waits for in the order of the incidents. `lacking` says in words which part of this could not be asked.
    """

    incidents: tuple[ToldIncident, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    awaiting: tuple[AwaitingView, ...] = ()
    awaiting_more: int = 0
    blocked_more: int = 0
    cordoned: NamedNodes = NamedNodes()
    untended: NamedNodes = NamedNodes()  # unhealthy, and no incident speaks of them
    silenced: SilencedView = SilencedView()
    heard: HeardView = HeardView()
    lacking: tuple[str, ...] = ()

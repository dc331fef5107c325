"""API views of the cluster overview: bounded lists, with omitted items counted."""

from __future__ import annotations

import msgspec

from remediator.model.views import IncidentView, NodeView, StatusView
from remediator.model.views_actions import AwaitingView


class NamedNodes(msgspec.Struct, frozen=True):
    """A number of nodes; `names` are the first of them by name."""

    count: int = 0
    names: tuple[str, ...] = ()


class ReportFreshness(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many nodes of the cluster have reported as recently as announced, and the time of the oldest report (UTC s).

    `never`: nodes that have not reported to this leader; what is shown of them is from before its term.
    """

    nodes: int = 0
    fresh: int = 0
    never: int = 0
    oldest_at: float | None = None


class SilencedView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many silences there are, and when the first ends (UTC s)."""

    count: int = 0
    ends: float | None = None


class IncidentSummary(IncidentView, frozen=True, omit_defaults=True):
    """An open incident with its last decision, live findings and ended actions, the most important first.

    `findings_more` and `actions_more` count omitted ones.
    """

    findings_more: int = 0
    actions_more: int = 0


class OverviewView(StatusView, frozen=True, omit_defaults=True):
    """`GET /v1/overview`: the status, and the details needed next. Lists are cut; `…_more` counts omitted items.

    `incidents` are open, the worst first; `nodes` are theirs, without GPUs, ranks and findings. `blocked` is the
    status's, with the reasons of single incidents in their order. `lacking` says which part could not be loaded.
    """

    incidents: tuple[IncidentSummary, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    awaiting: tuple[AwaitingView, ...] = ()
    awaiting_more: int = 0
    blocked_more: int = 0
    cordoned: NamedNodes = NamedNodes()
    untended: NamedNodes = NamedNodes()  # unhealthy nodes without an incident
    silenced: SilencedView = SilencedView()
    heard: ReportFreshness = ReportFreshness()
    lacking: tuple[str, ...] = ()

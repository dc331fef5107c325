"""Incidents as pages list them: how grave, what the system does about it, and which guard holds it back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from remediator.api.render import incident_view
from remediator.decide.approval import proposed
from remediator.decide.guards import has_passed
from remediator.model.records import Answer, Incident
from remediator.model.views import IncidentView
from remediator.store.listing import Listing
from remediator.web.alike import Alike
from remediator.web.gravity import drill, findings_of, worst
from remediator.web.progress import doing
from remediator.web.visit import Visit
from vocabulary.finding import Severity

WORDS_MAX = 140


class Line(msgspec.Struct, frozen=True):
    """One incident. `worst` is the severity of its gravest live finding; `drill` as gravity.drill says it."""

    view: IncidentView
    doing: str
    worst: Severity | None
    drill: str


async def lines(visit: Visit, incidents: Sequence[Incident]) -> list[Line]:
    """A line each, in their order."""
    snapshot = visit.service.engine.snapshot
    held = {incident.decision for incident in incidents if incident.answer is Answer.HOLD}
    known = await asyncio.to_thread(Listing(visit.service.journal.engine).decisions, list(held)) if held else {}
    untold = frozenset(action.id for action in snapshot.actions.values() if action.untold)

    def line(incident: Incident) -> Line:
        view, found = incident_view(incident, untold=untold), findings_of(incident, snapshot.findings)
        decision = known.get(incident.decision)
        does = doing(view, incident.answer, incident.rule, refused(decision.guards) if decision else "")
        return Line(view, does, worst(found), drill(found, injected=incident.injected))

    return [line(incident) for incident in incidents]


class Row(msgspec.Struct, frozen=True):
    """Incidents that say the same, and the line of the first. `proposed`: stages of steps that somebody or something keeps from being done."""

    group: Alike
    line: Line
    proposed: tuple[tuple[str, ...], ...]


async def rows(visit: Visit, groups: Sequence[Alike]) -> list[Row]:
    """A row each, in their order."""
    rules = visit.service.engine.settings.policy.by_name
    told = await lines(visit, [group.first for group in groups])
    return [Row(group, line, proposed(group.first, rules)) for group, line in zip(groups, told, strict=True)]


def refused(guards: Collection[str]) -> str:
    """The first guard that said no, and what it said, cut where a line is long; empty: none did.

    >>> refused(("passed breaker: closed", "refused level: 10 of at most 10 nodes isolated by us"))
    'level: 10 of at most 10 nodes isolated by us'
    """
    words = next((guard.partition(" ")[2] for guard in guards if not has_passed(guard)), "")
    return words if len(words) <= WORDS_MAX else words[:WORDS_MAX].rpartition(" ")[0] + " …"

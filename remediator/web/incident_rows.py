"""Rows of incident lists: severity, what automation does, and the guard that holds it back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from remediator.api.record_views import incident_view
from remediator.decisions.approval import list_proposed_stages
from remediator.decisions.rule_guards import is_guard_passed
from remediator.model.journal_records import Answer, Incident
from remediator.model.views import IncidentView
from remediator.store.history_queries import HistoryQueries
from remediator.web.incident_grouping import IncidentGroup
from remediator.web.incident_progress import incident_progress_text
from remediator.web.page_request import PageRequest
from remediator.web.severity_order import drill_text, known_incident_findings, worst_severity
from vocabulary.finding import Severity

WORDS_MAX = 140


class IncidentLine(msgspec.Struct, frozen=True):
    """One incident. `worst` is the severity of its worst active finding; `drill` is the result of `drill_text`."""

    view: IncidentView
    doing: str
    worst: Severity | None
    drill: str


async def incident_lines(visit: PageRequest, incidents: Sequence[Incident]) -> list[IncidentLine]:
    """One line per incident, in their order."""
    snapshot = visit.service.engine.snapshot
    held = {incident.decision for incident in incidents if incident.answer is Answer.BLOCKED}
    known = await asyncio.to_thread(HistoryQueries(visit.service.journal.engine).decisions, list(held)) if held else {}
    undelivered = frozenset(action.id for action in snapshot.actions.values() if action.untold)

    def line(incident: Incident) -> IncidentLine:
        view, found = incident_view(incident, untold=undelivered), known_incident_findings(incident, snapshot.findings)
        decision = known.get(incident.decision)
        does = incident_progress_text(
            view, incident.answer, incident.rule, first_refused_guard(decision.guards) if decision else ""
        )
        return IncidentLine(view, does, worst_severity(found), drill_text(found, injected=incident.injected))

    return [line(incident) for incident in incidents]


class IncidentRow(msgspec.Struct, frozen=True):
    """A group of similar incidents and the line of the first. `proposed` holds the stages of a plan that has not started."""

    group: IncidentGroup
    line: IncidentLine
    proposed: tuple[tuple[str, ...], ...]


async def incident_group_rows(visit: PageRequest, groups: Sequence[IncidentGroup]) -> list[IncidentRow]:
    """One row per group, in their order."""
    rules = visit.service.engine.settings.policy.by_name
    lines = await incident_lines(visit, [group.first for group in groups])
    return [
        IncidentRow(group, line, list_proposed_stages(group.first, rules))
        for group, line in zip(groups, lines, strict=True)
    ]


def first_refused_guard(guards: Collection[str]) -> str:
    """The first guard that refused, with its text, cut to `WORDS_MAX`; empty if none did.

    >>> first_refused_guard(("passed breaker: closed", "refused level: 10 of at most 10 nodes isolated"))
    'level: 10 of at most 10 nodes isolated'
    """
    words = next((guard.partition(" ")[2] for guard in guards if not is_guard_passed(guard)), "")
    return words if len(words) <= WORDS_MAX else words[:WORDS_MAX].rpartition(" ")[0] + " …"

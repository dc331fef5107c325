"""The impact of an incident's plan, or why it is unknown: an error here must not prevent an approval."""

from __future__ import annotations

import logging

import msgspec

from remediator.api.handler_context import HandlerContext
from remediator.model.journal_records import Incident
from remediator.model.views import StatusView
from remediator.web.blast_radius import BlastRadius, compute_blast_radius, count_job_nodes

log = logging.getLogger(__name__)


class PlanImpact(msgspec.Struct, frozen=True):
    """The blast radius, or in `untold` why it is unknown."""

    blast: BlastRadius | None = None
    untold: str = ""


def compute_plan_impacts(incidents: list[Incident], service: HandlerContext, status: StatusView) -> list[PlanImpact]:
    """One impact per incident, in their order, all from the same snapshot."""
    snapshot, rules = service.engine.snapshot, service.engine.settings.policy.by_name
    try:
        crew = count_job_nodes(snapshot)
    except Exception as error:
        log.exception("cannot determine which jobs run on which nodes")
        return [PlanImpact(untold=_error_text(error))] * len(incidents)
    found = []
    for incident in incidents:
        try:
            found.append(
                PlanImpact(compute_blast_radius(incident, rules, status, snapshot, service.report_registry, crew))
            )
        except Exception as error:
            log.exception("cannot determine the impact of %s", incident.id)
            found.append(PlanImpact(untold=_error_text(error)))
    return found


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

"""Whom an incident's plan hits, or why that cannot be told: a fault of ours must not keep people from their word."""

from __future__ import annotations

import logging

import msgspec

from remediator.api.service import Service
from remediator.model.records import Incident
from remediator.model.views import StatusView
from remediator.web.blast import Blast, blast, crews

log = logging.getLogger(__name__)


class Whom(msgspec.Struct, frozen=True):
    """`blast`, or `untold`: why there is none."""

    blast: Blast | None = None
    untold: str = ""


def whom(incidents: list[Incident], service: Service, status: StatusView) -> list[Whom]:
    """One for each incident, in their order; the same moment counts for all of them."""
    snapshot, rules = service.engine.snapshot, service.engine.settings.policy.by_name
    try:
        crew = crews(snapshot)
    except Exception as error:
        log.exception("which jobs run where could not be worked out")
        return [Whom(untold=_words(error))] * len(incidents)
    found = []
    for incident in incidents:
        try:
            found.append(Whom(blast(incident, rules, status, snapshot, service.roster, crew)))
        except Exception as error:
            log.exception("whom %s hits could not be worked out", incident.id)
            found.append(Whom(untold=_words(error)))
    return found


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

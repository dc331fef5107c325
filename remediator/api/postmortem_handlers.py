"""`GET /v1/incidents/{id}/postmortem`: an incident's post-mortem as Markdown, HTML or JSON."""

from __future__ import annotations

import asyncio
import gzip
import logging
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.handler_context import HandlerContext, Refusal, handler_context_of
from remediator.model.journal_records import Action, Incident
from remediator.postmortem.document_rendering import DocumentForm, render_document
from remediator.postmortem.incident_history import IncidentHistory
from remediator.postmortem.postmortem_facts import build_post_mortem
from remediator.store.evidence_store import EvidenceStore
from remediator.store.incident_queries import IncidentQueries
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.wire import WireError, decode_message
from vocabulary.order import TRAINER_ORDERS

log = logging.getLogger(__name__)

BUNDLES_MAX = 8  # decompressed for one post-mortem; those of the node itself first
EARLIER_S = 30 * 86400.0
RETURNS_WITHIN_S = 7 * 86400.0
HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Referrer-Policy": "no-referrer"}


async def show_postmortem(request: Request) -> Response:
    """`format` is md, html or json."""
    form = _requested_form(request)
    incident = request.path_params["incident"]
    page = await asyncio.to_thread(_render_postmortem, handler_context_of(request), incident, form)
    return Response(page, media_type=form.media_type, headers=HEADERS)


def _requested_form(request: Request) -> DocumentForm:
    word = request.query_params.get("format", DocumentForm.MARKDOWN.value)
    try:
        return DocumentForm(word)
    except ValueError:
        raise Refusal(
            400, f"unknown format {word!r}", f"use one of {', '.join(form.value for form in DocumentForm)}"
        ) from None


def _render_postmortem(service: HandlerContext, incident: str, form: DocumentForm) -> str:
    return render_document(build_post_mortem(_load_incident_history(service, incident)), form)


def _load_incident_history(service: HandlerContext, incident_id: str) -> IncidentHistory:
    found = service.journal.incident(incident_id)
    if found is None:
        raise Refusal(404, f"incident {incident_id} does not exist", "see 'healthctl incidents list'")
    incident, findings, decisions, actions = found
    store, now = IncidentQueries(service.journal.engine), service.clock.wall()
    attempts = _newest_job_attempts(actions)
    until = min(now, incident.opened_at + RETURNS_WITHIN_S)
    nodes = {incident.node, *(action.node for action in actions)}
    entries = {node: entry for node in nodes if (entry := service.report_registry.get(node)) is not None}
    return IncidentHistory(
        incident=incident,
        as_of=now,
        catalogue=_load_fault_catalogue(),
        findings=findings,
        decisions=decisions,
        actions=actions,
        events=store.events(incident.id),
        evidence=_load_evidence_bundles(EvidenceStore(service.journal.engine), incident),
        gpus={node: len(entry.gpus) for node, entry in entries.items() if entry.gpus},
        returns=store.returns(attempts, incident.opened_at, until) if attempts else {},
        earlier=store.earlier(incident, EARLIER_S),
    )


def _newest_job_attempts(actions: list[Action]) -> dict[str, int]:
    """Return the newest attempt of each job that was ordered to checkpoint or to stop."""
    attempts: dict[str, int] = {}
    for order in (action.order for action in actions):
        if order is not None and order.kind in TRAINER_ORDERS and order.attempt is not None:
            attempts[order.job] = max(order.attempt, attempts.get(order.job, 0))
    return attempts


def _load_evidence_bundles(store: EvidenceStore, incident: Incident) -> list[EvidenceBundle]:
    entries = sorted(store.of_incident(incident.id), key=lambda entry: (entry.node != incident.node, entry.at))
    bundles = []
    for entry in entries[:BUNDLES_MAX]:
        content = store.content(incident.id, entry.order)
        try:
            bundles.append(decode_message(gzip.decompress(content or b""), EvidenceBundle))
        except (WireError, OSError, EOFError) as error:  # it was valid on arrival
            log.error("evidence for order %s cannot be read: %s", entry.order, error)
    return bundles


@cache
def _load_fault_catalogue() -> Catalogue:
    return load_catalogue()

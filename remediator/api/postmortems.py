"""`GET /v1/incidents/{id}/postmortem`: an incident told whole, as Markdown, HTML or JSON."""

from __future__ import annotations

import asyncio
import gzip
import logging
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.service import Refusal, Service, service_of
from remediator.model.records import Action, Incident
from remediator.postmortem.facts import post_mortem
from remediator.postmortem.render import Form, render
from remediator.postmortem.story import Story
from remediator.store.evidence import EvidenceStore
from remediator.store.story import StoryStore
from vocabulary.catalogue import Catalogue
from vocabulary.catalogue_file import load_catalogue
from vocabulary.evidence import EvidenceBundle
from vocabulary.order import TRAINER_ORDERS
from vocabulary.wire import WireError, decode

log = logging.getLogger(__name__)

BUNDLES_MAX = 8  # that are unpacked for one post-mortem; those of the node itself first
EARLIER_S = 30 * 86400.0
RETURNS_WITHIN_S = 7 * 86400.0
HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Referrer-Policy": "no-referrer"}


async def show(request: Request) -> Response:
    """`format` is md, html or json."""
    form = _form(request)
    incident = request.path_params["incident"]
    page = await asyncio.to_thread(_render, service_of(request), incident, form)
    return Response(page, media_type=form.media_type, headers=HEADERS)


def _form(request: Request) -> Form:
    word = request.query_params.get("format", Form.MARKDOWN.value)
    try:
        return Form(word)
    except ValueError:
        raise Refusal(400, f"no format {word!r}", f"there are {', '.join(form.value for form in Form)}") from None


def _render(service: Service, incident: str, form: Form) -> str:
    return render(post_mortem(_story(service, incident)), form)


def _story(service: Service, incident_id: str) -> Story:
    found = service.journal.incident(incident_id)
    if found is None:
        raise Refusal(404, f"there is no incident {incident_id}", "see 'healthctl incidents list'")
    incident, findings, decisions, actions = found
    store, now = StoryStore(service.journal.engine), service.clock.wall()
    attempts = _attempts(actions)
    until = min(now, incident.opened_at + RETURNS_WITHIN_S)
    nodes = {incident.node, *(action.node for action in actions)}
    entries = {node: entry for node in nodes if (entry := service.roster.get(node)) is not None}
    return Story(
        incident=incident,
        as_of=now,
        catalogue=_catalogue(),
        findings=findings,
        decisions=decisions,
        actions=actions,
        events=store.events(incident.id),
        evidence=_bundles(EvidenceStore(service.journal.engine), incident),
        gpus={node: len(entry.gpus) for node, entry in entries.items() if entry.gpus},
        returns=store.returns(attempts, incident.opened_at, until) if attempts else {},
        earlier=store.earlier(incident, EARLIER_S),
    )


def _attempts(actions: list[Action]) -> dict[str, int]:
    """The newest attempt of each job that was told to save or to stop."""
    attempts: dict[str, int] = {}
    for order in (action.order for action in actions):
        if order is not None and order.kind in TRAINER_ORDERS and order.attempt is not None:
            attempts[order.job] = max(order.attempt, attempts.get(order.job, 0))
    return attempts


def _bundles(store: EvidenceStore, incident: Incident) -> list[EvidenceBundle]:
    entries = sorted(store.of_incident(incident.id), key=lambda entry: (entry.node != incident.node, entry.at))
    bundles = []
    for entry in entries[:BUNDLES_MAX]:
        content = store.content(incident.id, entry.order)
        try:
            bundles.append(decode(gzip.decompress(content or b""), EvidenceBundle))
        except (WireError, OSError, EOFError) as error:  # it was whole when it came
            log.error("evidence for order %s cannot be read: %s", entry.order, error)
    return bundles


@cache
def _catalogue() -> Catalogue:
    return load_catalogue()

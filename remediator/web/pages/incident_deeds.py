"""What an operator may do with an incident. What has consequences shows them first, on a page of its own."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.api.service import Refusal, Service
from remediator.model.records import Incident
from remediator.model.views import Approval, IncidentView, StatusView, Words
from remediator.web.blast import NODES_NAMED, Blast, blast, crews
from remediator.web.incident_deeds import DEEDS, Deed
from remediator.web.visit import Visit

log = logging.getLogger(__name__)


async def ask(visit: Visit) -> Response:
    """`GET`: whom it hits, and the form."""
    deed = _deed(visit)
    if not deed.asked:
        raise HTTPException(404, "this is done on the incident's own page")
    return await _form(visit, deed)


async def do(visit: Visit) -> Response:
    """`POST`: do it, durably, and go back to the incident."""
    deed, name = _deed(visit), visit.request.path_params["incident"]
    text, seen = visit.form.get("text", "").strip(), visit.form.get("seen", "*")
    path = f"/v1/incidents/{name}/{deed.route}"
    try:
        if deed.word == "approve":
            await visit.tell(path, Approval(visit.form.get("what", "")))
        elif deed.word == "note":
            await visit.tell(path, Words(text), Idempotency_Key=visit.form.get("key", ""))
        else:
            await visit.tell(path, Words(text), If_Match=_header(seen))
    except Refusal as refusal:
        if not deed.asked:
            raise
        words = f"{refusal.problem.error}; {refusal.problem.todo}" if refusal.problem.todo else refusal.problem.error
        return await _form(visit, deed, words, refusal.status)
    return visit.go(f"/incidents/{name}", deed.word)


def _header(text: str) -> str:
    """What a form says it saw, fit for a header; what no header could be fits nothing."""
    return text if text.isascii() and text.isprintable() else '"?"'


def _deed(visit: Visit) -> Deed:
    deed = DEEDS.get(visit.request.path_params["deed"])
    if deed is None:
        raise HTTPException(404, "there is no such deed")
    return deed


async def _form(visit: Visit, deed: Deed, wrong: str = "", code: int = 200) -> Response:
    name, service = visit.request.path_params["incident"], visit.service
    answer = await visit.answer(f"/v1/incidents/{name}")
    view = msgspec.json.decode(answer.body, type=IncidentView)
    known = service.engine.snapshot.incidents.get(name)
    hits = None
    if known is not None and deed.word == "approve":
        hits = await asyncio.to_thread(_blast, service, known, await visit.status())
    return await visit.page(
        "incident_deed.html.j2",
        title=f"{deed.title} {name}",
        status=code,
        deed=deed,
        incident=view,
        fits=deed.fits(view),
        blast=hits,
        blast_failed=known is not None and deed.word == "approve" and hits is None,
        nodes_named=NODES_NAMED,
        what=visit.form.get("what", visit.query("what")),
        seen=answer.headers["etag"],
        wrong=wrong,
        text=visit.form.get("text", ""),
    )


def _blast(service: Service, incident: Incident, status: StatusView) -> Blast | None:
    """What is to come; None where a fault of ours keeps that from being known: people may act all the same."""
    try:
        snapshot, rules = service.engine.snapshot, service.engine.settings.policy.by_name
        return blast(incident, rules, status, snapshot, service.roster, crews(snapshot))
    except Exception:
        log.exception("whom %s hits could not be worked out", incident.id)
        return None

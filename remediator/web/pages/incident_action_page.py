"""Operator actions on an incident. An action with consequences shows them first, on a page of its own."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.api.handler_context import Refusal
from remediator.model.views import Approval, CommandText, IncidentView
from remediator.web.blast_radius import NODES_NAMED
from remediator.web.incident_actions import INCIDENT_ACTIONS, IncidentAction
from remediator.web.page_request import PageRequest
from remediator.web.plan_impact import PlanImpact, compute_plan_impacts


async def show_incident_action_form(visit: PageRequest) -> Response:
    """`GET`: the impact, and the form."""
    action = _requested_incident_action(visit)
    if not action.asked:
        raise HTTPException(404, "this action has no page of its own; use the incident's page")
    return await _render_incident_action_form(visit, action)


async def submit_incident_action(visit: PageRequest) -> Response:
    """`POST`: perform the action durably, and return to the incident."""
    action, name = _requested_incident_action(visit), visit.request.path_params["incident"]
    text, seen = visit.form.get("text", "").strip(), visit.form.get("seen", "*")
    path = f"/v1/incidents/{name}/{action.route}"
    try:
        if action.word == "approve":
            await visit.submit(path, Approval(visit.form.get("what", "")))
        elif action.word == "note":
            await visit.submit(path, CommandText(text), Idempotency_Key=visit.form.get("key", ""))
        else:
            await visit.submit(path, CommandText(text), If_Match=_etag_header(seen))
    except Refusal as refusal:
        if not action.asked:
            raise
        words = f"{refusal.problem.error}; {refusal.problem.todo}" if refusal.problem.todo else refusal.problem.error
        return await _render_incident_action_form(visit, action, words, refusal.status)
    return visit.go(f"/incidents/{name}", action.word)


def _etag_header(text: str) -> str:
    """The form's ETag as a header value; a text that is not valid in a header matches nothing."""
    return text if text.isascii() and text.isprintable() else '"?"'


def _requested_incident_action(visit: PageRequest) -> IncidentAction:
    action = INCIDENT_ACTIONS.get(visit.request.path_params["action"])
    if action is None:
        raise HTTPException(404, "there is no such action")
    return action


async def _render_incident_action_form(
    visit: PageRequest, action: IncidentAction, wrong: str = "", code: int = 200
) -> Response:
    name = visit.request.path_params["incident"]
    answer = await visit.answer(f"/v1/incidents/{name}")
    view = msgspec.json.decode(answer.body, type=IncidentView)
    known = visit.service.engine.snapshot.incidents.get(name)
    hits = PlanImpact()
    if known is not None and action.word == "approve":
        [hits] = await asyncio.to_thread(compute_plan_impacts, [known], visit.service, await visit.status())
    return await visit.page(
        "incident_action.html.j2",
        title=f"{action.title} {name}",
        status=code,
        action=action,
        incident=view,
        fits=action.fits(view),
        whom=hits,
        nodes_named=NODES_NAMED,
        what=visit.form.get("what", visit.query("what")),
        seen=answer.headers["etag"],
        wrong=wrong,
        text=visit.form.get("text", ""),
    )

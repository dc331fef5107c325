"""`/work`: pending approvals with their impact, and actions that are under way or ended recently."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.model.plan_steps import Verb
from remediator.model.views import CommandText
from remediator.model.views_actions import ActionList, AwaitingList, AwaitingView
from remediator.web.action_grouping import group_actions
from remediator.web.approval_grouping import group_approvals
from remediator.web.blast_radius import NODES_NAMED
from remediator.web.incident_timeline import format_latency
from remediator.web.page_request import PageRequest
from remediator.web.plan_impact import PlanImpact, compute_plan_impacts
from remediator.web.severity_order import drill_text, known_incident_findings

AWAITING_SHOWN = 100
ACTIONS_SHOWN = 100
STATES = ("open", "ended", "all")


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A pending approval. `drill` is the result of `drill_text`; `declinable`: its incident can be resolved instead."""

    awaiting: AwaitingView
    whom: PlanImpact
    declinable: bool
    drill: str


async def show_work_queue(visit: PageRequest) -> Response:
    """The page."""
    state = visit.query("state")
    state = state if state in STATES else "open"
    awaiting = (await visit.ask("/v1/awaiting", AwaitingList)).awaiting
    asked = await _approval_requests(visit, awaiting[:AWAITING_SHOWN])
    actions = (await visit.ask("/v1/actions", ActionList, state=state, limit=ACTIONS_SHOWN)).actions
    return await visit.page(
        "approvals_and_actions.html.j2",
        title="Approvals and actions",
        cards=_approval_cards(visit, asked),
        awaiting_shown=len(asked),
        awaiting_total=len(awaiting),
        actions=group_actions(actions),
        actions_total=len(actions),
        actions_max=ACTIONS_SHOWN,
        state=state,
        states=STATES,
        cordon=Verb.CORDON.value,
        nodes_named=NODES_NAMED,
        lapse=format_latency,
    )


async def submit_action_cancellation(visit: PageRequest) -> Response:
    """`POST /work/cancel`: cancel an action."""
    action = visit.form.get("action", "")
    if not visit.knows("POST", f"/v1/actions/{action}/cancel"):
        raise HTTPException(404, "there is no such action")
    await visit.submit(f"/v1/actions/{action}/cancel", CommandText(visit.form.get("text", "").strip()))
    return visit.go("/work", "cancel")


def _approval_cards(visit: PageRequest, asked: list[ApprovalRequest]) -> list[list[ApprovalRequest]]:
    """Group requests with the same plan on one card."""
    snapshot, known = visit.service.engine.snapshot, {(a.awaiting.incident, a.awaiting.what): a for a in asked}
    rows = group_approvals([a.awaiting for a in asked], snapshot.incidents, snapshot.findings)
    return [[known[each.incident, each.what] for each in row.awaiting] for row in rows]


async def _approval_requests(visit: PageRequest, awaiting: tuple[AwaitingView, ...]) -> list[ApprovalRequest]:
    """Each request with its impact. An incident cannot be resolved while its plan is under way."""
    snapshot = visit.service.engine.snapshot
    known = [
        each for each in awaiting if each.incident in snapshot.incidents
    ]  # others were closed between the two requests
    if not known:
        return []
    incidents = [snapshot.incidents[each.incident] for each in known]
    hits = await asyncio.to_thread(compute_plan_impacts, incidents, visit.service, await visit.status())
    return [
        ApprovalRequest(
            each,
            hit,
            incident.state.value in {"open", "waiting"},
            drill_text(known_incident_findings(incident, snapshot.findings), injected=incident.injected),
        )
        for each, incident, hit in zip(known, incidents, hits, strict=True)
    ]

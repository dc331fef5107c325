"""Operator actions on a node: first a page that shows the impact, then the action, as an API call."""

from __future__ import annotations

import asyncio
import logging

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remediator.api.handler_context import HandlerContext, Refusal
from remediator.api.node_override_handlers import running_node_work
from remediator.model.views import CommandText, HoldRequest, NodeView, UncordonRequest
from remediator.web import blast_radius
from remediator.web.node_actions import NODE_ACTIONS, NodeAction
from remediator.web.page_request import PageRequest

log = logging.getLogger(__name__)

HOUR_S = 3600.0
HOURS = (0, 1, 4, 8, 24, 72)  # 0: until released
JOBS_SHOWN = 20


async def show_node_action_form(visit: PageRequest) -> Response:
    """`GET`: the impact, and the form."""
    return await _render_action_form(visit, _requested_node_action(visit))


async def submit_node_action(visit: PageRequest) -> Response:
    """`POST`: perform the action durably, and return to the node."""
    action, text = _requested_node_action(visit), visit.form.get("text", "").strip()
    if action.needs_reason and not text:
        return await _render_action_form(visit, action, "Enter a reason.", 400)
    try:
        await visit.submit(f"/v1/nodes/{visit.node}/{action.word}", _node_action_body(visit, action, text))
    except Refusal as refusal:
        words = f"{refusal.problem.error}; {refusal.problem.todo}" if refusal.problem.todo else refusal.problem.error
        return await _render_action_form(visit, action, words, refusal.status)
    return visit.go(f"/nodes/{visit.node}", action.word)


def _node_action_body(visit: PageRequest, action: NodeAction, text: str) -> HoldRequest | UncordonRequest | CommandText:
    if action.forced:
        return UncordonRequest(text, visit.form.get("force", "") == "yes")
    if not action.timed:
        return CommandText(text)
    hours = visit.form.get("hours", "0")
    if hours not in {str(hours) for hours in HOURS}:
        raise Refusal(400, f"{hours[:20]!r} is not an offered duration", "choose one from the list")
    return HoldRequest(text, visit.now + int(hours) * HOUR_S if hours != "0" else None)


def _requested_node_action(visit: PageRequest) -> NodeAction:
    action = NODE_ACTIONS.get(visit.request.path_params["action"])
    if action is None or not visit.knows("POST", f"/v1/nodes/{visit.node}/{action.word}"):
        raise HTTPException(404, "there is no such action")
    return action


async def _render_action_form(visit: PageRequest, action: NodeAction, wrong: str = "", code: int = 200) -> Response:
    node = await visit.ask(f"/v1/nodes/{visit.node}", NodeView)
    status = await visit.status()
    hits = await asyncio.to_thread(_node_action_impact, visit.service, node.node)
    return await visit.page(
        "node_action.html.j2",
        title=f"{action.title} {node.node}",
        status=code,
        action=action,
        node=node,
        jobs=hits[:JOBS_SHOWN] if hits is not None else None,
        more_jobs=len(hits or ()) - JOBS_SHOWN,
        isolated=status.isolated,
        isolated_max=status.isolated_max,
        hours=HOURS,
        running=running_node_work(visit.service.engine.snapshot, node.node, visit.now) if action.forced else [],
        wrong=wrong,
        text=visit.form.get("text", ""),
    )


def _node_action_impact(service: HandlerContext, node: str) -> tuple[blast_radius.JobImpact, ...] | None:
    """The affected jobs; None if an error prevents their computation, so that operators can act anyway."""
    try:
        snapshot = service.engine.snapshot
        return blast_radius.affected_jobs_of(
            [snapshot.nodes[node]], service.report_registry, blast_radius.count_job_nodes(snapshot)
        )
    except Exception:
        log.exception("cannot determine the impact of an action on %s", node)
        return None

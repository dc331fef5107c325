"""The cluster's status, and its overview with the details an operator needs next."""

from __future__ import annotations

import asyncio
import os
import socket
from importlib.metadata import version

from msgspec.structs import asdict, replace
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from remediator.api import overview_views as render
from remediator.api.handler_context import HandlerContext, handler_context_of, json_response, query_number
from remediator.api.list_handlers import awaiting_views
from remediator.api.status_views import status_view
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.views import StatusView
from remediator.model.views_overview import OverviewView
from remediator.overrides.cluster_overrides import list_open_silences
from remediator.store.database import is_permanent_refusal
from remediator.store.history_queries import HistoryQueries

TOLD, TOLD_MAX = 20, 100
LISTED_MAX = 1000  # blocking reasons, and items that await an operator

WITHOUT_DATABASE = "the database does not answer: the reasons of decisions and the waiting times are unknown"


async def show_status(request: Request) -> Response:
    """`GET /v1/status`."""
    service = handler_context_of(request)
    return json_response(await asyncio.to_thread(_build_status, service, service.engine.snapshot, service.clock.wall()))


async def show_overview(request: Request) -> Response:
    """`GET /v1/overview?incidents=N`: the status, and details of the N worst open incidents."""
    told = int(query_number(request, "incidents", TOLD, 0, TOLD_MAX))
    return await asyncio.to_thread(lambda: json_response(_build_overview(handler_context_of(request), told)))


def _build_overview(service: HandlerContext, told: int) -> OverviewView:
    now, snapshot, registry = service.clock.wall(), service.engine.snapshot, service.report_registry
    rules, listing = service.engine.settings.policy.by_name, HistoryQueries(service.journal.engine)
    seen = _build_status(service, snapshot, now)
    incidents = render.order_worst_incidents(snapshot)
    chosen = incidents[:told]
    lacking: tuple[str, ...] = ()
    try:
        decisions = listing.decisions([incident.decision for incident in chosen])
        waiting = awaiting_views(snapshot, rules, listing.decided_at)
    except SQLAlchemyError as error:
        if is_permanent_refusal(error):
            raise
        decisions, waiting = {}, awaiting_views(snapshot, rules, lambda _: {})
        lacking = ("the database does not answer: the reasons of decisions and the waiting times are unknown",)
    blocked = render.order_blocked_reasons(seen.blocked, incidents)
    return OverviewView(
        **asdict(replace(seen, blocked=tuple(blocked[:LISTED_MAX]))),
        blocked_more=max(0, len(blocked) - LISTED_MAX),
        incidents=render.incident_overviews(chosen, snapshot, decisions, rules),
        nodes=render.incident_node_views(chosen, snapshot, registry, now),
        awaiting=tuple(waiting[:LISTED_MAX]),
        awaiting_more=max(0, len(waiting) - LISTED_MAX),
        cordoned=render.operator_cordoned_nodes(snapshot),
        untended=render.unhealthy_unassigned_nodes(snapshot, registry, now),
        silenced=render.silence_summary(list_open_silences(snapshot.operator_overrides)),
        heard=render.report_freshness_view(snapshot, registry, now),
        lacking=lacking,
    )


def _build_status(service: HandlerContext, snapshot: StateSnapshot, now: float) -> StatusView:
    view = status_view(
        service.config.cluster, version("gpu-healthd"), service.engine.settings, snapshot, service.report_registry, now
    )
    trouble = (service.engine.trouble,) if service.engine.trouble else ()
    word = service.performer.scheduler_word
    if service.reload.problem:
        trouble = (*trouble, f"the current playbook files are not in force: {service.reload.problem}")
    if word != "ok" and snapshot.nodes:  # it is polled about nodes only
        trouble = (*trouble, f"scheduler: {word}")
    if not service.engine.may_act() and not service.engine.trouble:
        trouble = (*trouble, "leadership is not confirmed: no action starts until it is")
    blocked = (*trouble, *view.blocked)
    return replace(view, epoch=service.engine.epoch, scheduler=word, blocked=blocked, leader=_leader_name(service))


def _leader_name(service: HandlerContext) -> str:
    """Return this replica's name: only the leader answers."""
    alone = "the only replica" if service.journal.alone else "standbys are allowed"
    lease = "leadership confirmed" if service.engine.may_act() else "leadership not confirmed"
    return f"{socket.gethostname()}, process {os.getpid()}, epoch {service.engine.epoch}; {alone}; {lease}"

"""Lists: GPUs, jobs, actions, approvals, the breaker, lemons, stragglers, a node's history.

All are computed outside the event loop, for they are large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import NAME_MAX
from remediator.api.handler_context import HandlerContext, Refusal, handler_context_of, json_response, query_number
from remediator.api.job_views import NOWHERE, find_job_view, list_gpu_views, list_job_views, parse_gpu_key
from remediator.api.record_views import action_view, event_view
from remediator.decisions.approval import list_awaited_approvals, list_proposed_stages
from remediator.decisions.budget_usage import describe_budget_limits
from remediator.decisions.policy import PolicyRule
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.detector_origin import CENTRE
from remediator.model.journal_records import BREAKER
from remediator.model.views import EventList
from remediator.model.views_actions import ActionList, AwaitingList, AwaitingView, BreakerView
from remediator.model.views_detectors import LemonList, LemonView, StragglerList, StragglerView
from remediator.model.views_jobs import GpuList, JobList
from remediator.monitoring import lemon_findings as lemon_watch
from remediator.monitoring import straggler_findings
from remediator.state.node_index import is_in_cluster
from remediator.store.history_queries import HistoryQueries
from vocabulary.finding import Evidence, Finding
from vocabulary.identity import ComponentKind
from vocabulary.messages.wire import encode_message

T = TypeVar("T")

GPUS_LISTED, GPUS_MAX = 1000, 10_000
ACTIONS_LISTED, ACTIONS_MAX = 200, 1000
EVENTS_LISTED, EVENTS_MAX = 200, 1000
FRESH_S = 1.0  # how long a result over all ranks is shared
STATES = ("open", "ended", "all")
DAY_H = 24.0
LEMON_NEXT_STEPS = {
    "watch": "none yet; the node is watched",
    "test": "run a preflight before its next job",
    "repair": "repair it: take it out of service",
    "replace": "replace it: repairs did not help",
}
_STRAGGLER = f"{CENTRE}{straggler_findings.SOURCE}:"


class SharedResult(Generic[T]):
    """An expensive result, computed once for all callers within `FRESH_S`. For the event loop's thread only."""

    def __init__(self, work: Callable[[HandlerContext], T]) -> None:
        self._work = work
        self._one_at_a_time = asyncio.Lock()
        self._found: tuple[float, T] | None = None

    async def get(self, service: HandlerContext) -> T:
        """Return the result."""
        async with self._one_at_a_time:
            now = service.clock.monotonic()
            if self._found is None or now - self._found[0] >= FRESH_S:
                self._found = now, await asyncio.to_thread(self._work, service)
            return self._found[1]


def encoded_job_list(service: HandlerContext) -> bytes:
    """Return all jobs, encoded."""
    found = list_job_views(service.engine.snapshot, service.report_registry)
    return encode_message(JobList(at=service.clock.wall(), jobs=found))


async def show_gpus(request: Request) -> Response:
    """`GET /v1/gpus?node=PATTERN&after=NODE/INDEX&limit=N`."""
    service, pattern = handler_context_of(request), request.query_params.get("node", "*")
    limit = int(query_number(request, "limit", GPUS_LISTED, 1, GPUS_MAX))
    text = request.query_params.get("after", "")
    try:
        after = parse_gpu_key(text) if text else NOWHERE
    except ValueError:
        raise Refusal(400, f"after is {text!r}", "give NODE/INDEX of the last GPU, for example gpu-17/3") from None
    if len(pattern) > NAME_MAX:
        raise Refusal(400, f"node is longer than {NAME_MAX} characters", "node names are shorter")
    plain = not set("*?[") & set(pattern)
    if plain and pattern not in service.engine.snapshot.nodes:
        raise Refusal(404, f"no node {pattern} has ever reported", "see 'healthctl nodes list'")

    def found() -> Response:
        now = service.clock.wall()
        return json_response(
            GpuList(
                at=now,
                gpus=list_gpu_views(service.engine.snapshot, service.report_registry, now, pattern, after, limit),
            )
        )

    return await asyncio.to_thread(found)


async def show_jobs(request: Request) -> Response:
    """`GET /v1/jobs`."""
    shared: SharedResult[bytes] = request.app.state.jobs_listed
    return Response(await shared.get(handler_context_of(request)), media_type="application/json")


async def show_job(request: Request) -> Response:
    """`GET /v1/jobs/{job}`, with its ranks."""
    service, name = handler_context_of(request), request.path_params["job"]

    def found() -> Response:
        view = find_job_view(service.engine.snapshot, service.report_registry, name)
        if view is None:
            raise Refusal(404, f"no node has a rank of job {name}", "see 'healthctl jobs list'")
        return json_response(view)

    return await asyncio.to_thread(found)


async def show_actions(request: Request) -> Response:
    """`GET /v1/actions?state=open|ended|all&limit=N`, newest first."""
    service, state = handler_context_of(request), request.query_params.get("state", "open")
    limit = int(query_number(request, "limit", ACTIONS_LISTED, 1, ACTIONS_MAX))
    if state not in STATES:
        raise Refusal(400, f"state is {state!r}", f"give one of {', '.join(STATES)}")

    def found() -> Response:
        if state == "open":
            known = [action for action in service.engine.snapshot.actions.values() if not action.state.final]
            known = sorted(known, key=lambda action: (-action.planned_at, action.id))[:limit]
        else:
            known = HistoryQueries(service.journal.engine).actions(limit, ended=state == "ended")
        return json_response(ActionList(tuple(action_view(action) for action in known)))

    return await asyncio.to_thread(found)


async def show_awaiting(request: Request) -> Response:
    """`GET /v1/awaiting`."""
    service = handler_context_of(request)
    decided_at, rules = HistoryQueries(service.journal.engine).decided_at, service.engine.settings.policy.by_name
    found = await asyncio.to_thread(awaiting_views, service.engine.snapshot, rules, decided_at)
    return json_response(AwaitingList(tuple(found)))


def awaiting_views(
    snapshot: StateSnapshot, rules: Mapping[str, PolicyRule], decided_at: Callable[[Sequence[str]], Mapping[str, float]]
) -> list[AwaitingView]:
    """Return what awaits operators, the longest first; `decided_at` looks up times of decisions."""
    waiting = [
        (incident, each) for incident in snapshot.incidents.values() for each in list_awaited_approvals(incident)
    ]
    decided = decided_at([incident.decision for incident, _ in waiting])
    views = [
        AwaitingView(
            incident.id,
            incident.node,
            each.id,
            each.text,
            decided.get(incident.decision, incident.opened_at),
            incident.title,
            list_proposed_stages(incident, rules) or ((each.text,),),
        )
        for incident, each in waiting
    ]
    return sorted(views, key=lambda view: (view.since, view.what))


async def show_breaker(request: Request) -> Response:
    """`GET /v1/breaker`, with every limit of the whole cluster and its use."""
    return json_response(await asyncio.to_thread(_build_breaker_view, handler_context_of(request)))


def _build_breaker_view(service: HandlerContext) -> BreakerView:
    snapshot, now = service.engine.snapshot, service.clock.wall()
    incident = next((i for i in snapshot.incidents.values() if i.node == BREAKER), None)
    closed = HistoryQueries(service.journal.engine).last_closed(BREAKER)
    records = snapshot.nodes.values()
    figures = describe_budget_limits(
        service.engine.settings.budget,
        sum(map(is_in_cluster, records)),
        sum(record.held for record in records),
        snapshot.isolated_at,
        snapshot.failed,
        now,
    )
    return BreakerView(
        open=incident is not None,
        at=now,
        limits=figures,
        since=incident.opened_at if incident is not None else None,
        why=incident.title if incident is not None else "",
        incident=incident.id if incident is not None else "",
        last_reset=closed.closed_at if closed is not None else None,
        last_reset_by=closed.outcome if closed is not None else "",
    )


async def show_lemons(request: Request) -> Response:
    """`GET /v1/lemons`."""
    service = handler_context_of(request)
    return await asyncio.to_thread(lambda: json_response(LemonList(list_lemon_views(service.engine.snapshot))))


async def show_stragglers(request: Request) -> Response:
    """`GET /v1/stragglers`."""
    service = handler_context_of(request)
    return await asyncio.to_thread(
        lambda: json_response(StragglerList(list_straggler_views(service.engine.snapshot, service.report_registry)))
    )


async def show_node_history(request: Request) -> Response:
    """`GET /v1/nodes/{node}/history?limit=N`: its audit events, newest first; also for a removed node."""
    service, node = handler_context_of(request), request.path_params["node"]
    limit = int(query_number(request, "limit", EVENTS_LISTED, 1, EVENTS_MAX))

    def found() -> Response:
        events = HistoryQueries(service.journal.engine).events_of(node, limit)
        if not events and node not in service.engine.snapshot.nodes:
            raise Refusal(404, f"no node {node} has ever reported", "see 'healthctl nodes list'")
        return json_response(EventList(tuple(event_view(seq, event) for seq, event in events)))

    return await asyncio.to_thread(found)


def list_lemon_views(snapshot: StateSnapshot) -> tuple[LemonView, ...]:
    """Return suspected lemon nodes, the worst first."""
    incidents = {incident.node: incident.id for incident in snapshot.incidents.values()}
    found = [
        _build_lemon_view(finding, snapshot, incidents.get(finding.node, ""))
        for finding in snapshot.findings.values()
        if finding.active and finding.origin == lemon_watch.ORIGIN
    ]
    return tuple(sorted(found, key=lambda each: (-each.score, each.node)))


def _build_lemon_view(finding: Finding, snapshot: StateSnapshot, incident: str) -> LemonView:
    told, record = finding.evidence, snapshot.nodes.get(finding.node)
    advice = str(told.get("advice", ""))
    return LemonView(
        node=finding.node,
        score=_evidence_number(told, "probability"),
        state=finding.code,
        failures=int(_evidence_number(told, "incidents")),
        hours=_evidence_number(told, "service_d") * DAY_H,
        why=finding.summary,
        next_step=LEMON_NEXT_STEPS.get(advice, advice),
        since=finding.first_seen,
        at=finding.last_seen,
        jobs=tuple(dict.fromkeys(ref.job for ref in record.jobs)) if record is not None else (),
        incident=incident,
    )


def list_straggler_views(snapshot: StateSnapshot, registry: ReportRegistry) -> tuple[StragglerView, ...]:
    """Return what slows jobs down now, the slowest first."""
    incidents = {name: incident.id for incident in snapshot.incidents.values() for name in incident.findings}
    found = [
        _build_straggler_view(finding, registry, incidents.get(finding.id, ""))
        for finding in snapshot.findings.values()
        if finding.active and finding.origin.startswith(_STRAGGLER)
    ]
    return tuple(sorted(found, key=lambda each: (-each.excess, each.job, each.node)))


def _build_straggler_view(finding: Finding, registry: ReportRegistry, incident: str) -> StragglerView:
    told = finding.evidence
    job, attempt = str(told.get("job", "")), int(_evidence_number(told, "attempt"))
    ranks = tuple(int(rank) for rank in str(told.get("ranks", "")).split(", ") if rank.isdecimal())
    blamed = finding.component.kind is not ComponentKind.RANK
    entry = registry.get(finding.node)
    stages = [
        each.pipeline_stage
        for each in (entry.reported_ranks if entry is not None else ())
        if ranks and each.rank == ranks[0] and (each.job, each.attempt) == (job, attempt)
    ]
    return StragglerView(
        job=job,
        attempt=attempt,
        kind=finding.code,
        verdict=finding.summary,
        since=finding.first_seen,
        at=finding.last_seen,
        node=finding.node if blamed else "",
        rank=ranks[0] if ranks else None,
        ranks=ranks,
        stage=stages[0] if stages and stages[0] >= 0 else None,
        excess=_evidence_number(told, "slowdown"),
        confidence=_evidence_number(told, "confidence"),
        incident=incident,
    )


def _evidence_number(told: Evidence, name: str) -> float:
    value = told.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0

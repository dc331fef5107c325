"""Handlers for operators: nodes, incidents and events."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import check_open_request, client_address, request_identity
from remediator.api.handler_context import (
    WAIT_MAX_S,
    Refusal,
    check_admission,
    decode_request_body,
    handler_context_of,
    json_response,
    query_number,
    submit_input,
    wait_until_durable,
)
from remediator.api.incident_handlers import incident_etag
from remediator.api.record_views import (
    event_view,
    incident_list_view,
    incident_view,
    node_list_view,
    node_view,
    settlement_view,
)
from remediator.decisions.approval import list_awaited_approvals, list_proposed_stages
from remediator.model.journal_records import AuditEvent
from remediator.model.pipeline_inputs import StepApproved
from remediator.model.views import MOMENT_MAX, Approval, EventList
from remediator.store.history_queries import HistoryQueries
from remediator.store.incident_queries import IncidentQueries

INCIDENTS_LISTED = 200
NODES_MAX = 1_000_000
EVENTS_PER_ANSWER = 1000
SEQ_MAX = 2**53
APPROVAL_BYTES_MAX = 4096


async def list_nodes(request: Request) -> Response:
    """`GET /v1/nodes?after=NAME&limit=N`, by name; all by default. Runs outside the event loop."""
    service = handler_context_of(request)
    after = request.query_params.get("after", "")
    limit = int(query_number(request, "limit", NODES_MAX, 1, NODES_MAX))

    def listed() -> Response:
        return json_response(
            node_list_view(service.engine.snapshot, service.report_registry, service.clock.wall(), after, limit)
        )

    return await asyncio.to_thread(listed)


async def show_node(request: Request) -> Response:
    """`GET /v1/nodes/{node}`, with GPUs, ranks and findings."""
    service = handler_context_of(request)
    name, snapshot = request.path_params["node"], service.engine.snapshot
    record = snapshot.nodes.get(name)
    if record is None:
        raise Refusal(404, f"no node {name} has ever reported", "see 'healthctl nodes list'")
    return json_response(
        await asyncio.to_thread(node_view, record, snapshot, service.report_registry, service.clock.wall())
    )


async def list_incidents(request: Request) -> Response:
    """`GET /v1/incidents?state=open`, newest first: the newest, or all that are open."""
    service, state = handler_context_of(request), request.query_params.get("state", "all")
    if state == "open":
        snapshot = service.engine.snapshot
        found = sorted(snapshot.incidents.values(), key=lambda each: (-each.opened_at, each.id))
        injected = frozenset(name for name, finding in snapshot.findings.items() if finding.injected)
        untold = frozenset(action.id for action in snapshot.actions.values() if action.untold)
    elif state == "all":
        found = await asyncio.to_thread(service.journal.recent_incidents, INCIDENTS_LISTED)
        named = sorted({finding for each in found if not each.injected for finding in each.findings})
        listing = HistoryQueries(service.journal.engine)
        injected = await asyncio.to_thread(listing.injected, named)
        untold = await asyncio.to_thread(listing.untold, [each.id for each in found])
    else:
        raise Refusal(400, f"state is {state!r}", "give open or all")
    return json_response(incident_list_view(found, injected, untold))


async def show_incident(request: Request) -> Response:
    """`GET /v1/incidents/{id}`, in full."""
    name, service = request.path_params["incident"], handler_context_of(request)
    journal = service.journal
    found = await asyncio.to_thread(journal.incident, name)
    if found is None:
        raise Refusal(404, f"incident {name} does not exist", "see 'healthctl incidents list'")
    events = await asyncio.to_thread(IncidentQueries(journal.engine).events, name)
    words = await asyncio.to_thread(HistoryQueries(journal.engine).words_of, name, found[0].findings)
    settings, nodes = service.engine.settings, service.engine.snapshot.nodes
    view = msgspec.structs.replace(
        incident_view(*found, events),
        proposed=list_proposed_stages(found[0], settings.policy.by_name),
        word=settlement_view(found[1], words, nodes, settings.again_after_s),
    )
    return json_response(view, headers={"etag": incident_etag(found[0])})


async def approve_plan_step(request: Request) -> Response:
    """`POST /v1/incidents/{id}/approve`, body `{"what": ID}`: one of the ids for which the incident awaits approval."""
    service = handler_context_of(request)
    name = request.path_params["incident"]
    wanted = await decode_request_body(request, Approval, APPROVAL_BYTES_MAX)
    incident = service.engine.snapshot.incidents.get(name)
    if incident is None:
        raise Refusal(404, f"there is no open incident {name}", "see 'healthctl incidents list'")
    check_admission(service)
    waiting = [each.id for each in list_awaited_approvals(incident)]
    if wanted.what not in waiting:
        todo = f"it waits for {', '.join(waiting)}" if waiting else "the incident does not wait for approval"
        raise Refusal(409, f"{name} does not wait for {wanted.what!r}", todo)
    item = StepApproved(
        at=service.clock.wall(),
        incident=name,
        what=wanted.what,
        actor=request_identity(request).name,
        address=client_address(request),
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)


async def poll_events(request: Request) -> Response:
    """`GET /v1/events?after=SEQ&wait_s=N`: audit events after SEQ; waits up to N seconds for the first.

    With `since=T`, those from T (UTC s) on.
    """
    service = handler_context_of(request)
    after = int(query_number(request, "after", 0, 0, SEQ_MAX))
    if since := query_number(request, "since", 0, 0, MOMENT_MAX):
        after = max(after, await asyncio.to_thread(HistoryQueries(service.journal.engine).last_event_before, since))
    deadline = service.clock.monotonic() + query_number(request, "wait_s", 0, 0, WAIT_MAX_S)
    with service.wakeups.subscription() as woken:
        while True:
            found: list[tuple[int, AuditEvent]] = await asyncio.to_thread(
                service.journal.events, after, EVENTS_PER_ANSWER
            )
            left = deadline - service.clock.monotonic()
            if found or left <= 0 or service.wakeups.ended:
                return json_response(EventList(tuple(event_view(seq, event) for seq, event in found)))
            try:
                await asyncio.wait_for(woken.wait(), left)
            except asyncio.TimeoutError:
                return json_response(EventList(()))
            woken.clear()
            check_open_request(request)

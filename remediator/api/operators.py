"""What operators call: the cluster in one look, nodes, incidents, the audit log."""

from __future__ import annotations

import asyncio
import os
import socket
from importlib.metadata import version

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access import address, still_welcome, who
from remediator.api.actions import etag
from remediator.api.render import event_view, incident_lines, incident_view, node_list, node_view, status_view
from remediator.api.service import (
    WAIT_MAX_S,
    Refusal,
    Service,
    admit,
    durable,
    message_of,
    number,
    reply,
    service_of,
    submit,
)
from remediator.decide.approval import awaiting, proposed
from remediator.model.inputs import Approved
from remediator.model.records import AuditEvent
from remediator.model.views import MOMENT_MAX, Approval, EventList, StatusView
from remediator.store.listing import Listing
from remediator.store.story import StoryStore

INCIDENTS_LISTED = 200
NODES_MAX = 1_000_000
EVENTS_PER_ANSWER = 1000
SEQ_MAX = 2**53
APPROVAL_BYTES_MAX = 4096


async def status(request: Request) -> Response:
    """`GET /v1/status`."""
    return reply(await asyncio.to_thread(_status, service_of(request)))


def _status(service: Service) -> StatusView:
    now = service.clock.wall()
    view = status_view(
        service.config.cluster,
        version("gpu-healthd"),
        service.engine.settings,
        service.engine.snapshot,
        service.roster,
        now,
    )
    trouble = (service.engine.trouble,) if service.engine.trouble else ()
    word = service.performer.scheduler_word
    if service.reload.problem:
        trouble = (*trouble, f"the playbooks as they are now are not in force: {service.reload.problem}")
    if word != "ok":
        trouble = (*trouble, f"scheduler: {word}")
    if not service.engine.may_act() and not service.engine.trouble:
        trouble = (*trouble, "who leads is in doubt: nothing is begun until the lead is confirmed")
    blocked = (*trouble, *view.blocked)
    return msgspec.structs.replace(
        view, epoch=service.engine.epoch, scheduler=word, blocked=blocked, leader=_leader(service)
    )


def _leader(service: Service) -> str:
    """Who answers here: a standby does not."""
    alone = "the only replica" if service.journal.alone else "others may stand by"
    lease = "its lead is confirmed" if service.engine.may_act() else "its lead is in doubt"
    return f"{socket.gethostname()}, process {os.getpid()}, epoch {service.engine.epoch}; {alone}; {lease}"


async def nodes(request: Request) -> Response:
    """`GET /v1/nodes?after=NAME&limit=N`, by name; all of them where nothing is asked for. Away from the loop: they are many."""
    service = service_of(request)
    after = request.query_params.get("after", "")
    limit = int(number(request, "limit", NODES_MAX, 1, NODES_MAX))

    def listed() -> Response:
        return reply(node_list(service.engine.snapshot, service.roster, service.clock.wall(), after, limit))

    return await asyncio.to_thread(listed)


async def node(request: Request) -> Response:
    """`GET /v1/nodes/{node}`, with GPUs, ranks and findings."""
    service = service_of(request)
    name, snapshot = request.path_params["node"], service.engine.snapshot
    record = snapshot.nodes.get(name)
    if record is None:
        raise Refusal(404, f"no node {name} has ever reported", "see 'healthctl nodes list'")
    return reply(await asyncio.to_thread(node_view, record, snapshot, service.roster, service.clock.wall()))


async def incidents(request: Request) -> Response:
    """`GET /v1/incidents?state=open`, newest first: the newest, or every one that is open."""
    service, state = service_of(request), request.query_params.get("state", "all")
    if state == "open":
        snapshot = service.engine.snapshot
        found = sorted(snapshot.incidents.values(), key=lambda each: (-each.opened_at, each.id))
        injected = frozenset(name for name, finding in snapshot.findings.items() if finding.injected)
    elif state == "all":
        found = await asyncio.to_thread(service.journal.recent_incidents, INCIDENTS_LISTED)
        named = sorted({finding for each in found if not each.injected for finding in each.findings})
        injected = await asyncio.to_thread(Listing(service.journal.engine).injected, named)
    else:
        raise Refusal(400, f"state is {state!r}", "give open or all")
    return reply(incident_lines(found, injected))


async def incident(request: Request) -> Response:
    """`GET /v1/incidents/{id}`, whole."""
    name, service = request.path_params["incident"], service_of(request)
    journal = service.journal
    found = await asyncio.to_thread(journal.incident, name)
    if found is None:
        raise Refusal(404, f"there is no incident {name}", "see 'healthctl incidents list'")
    events = await asyncio.to_thread(StoryStore(journal.engine).events, name)
    steps = proposed(found[0], service.engine.settings.policy.by_name)
    view = msgspec.structs.replace(incident_view(*found, events), proposed=steps)
    return reply(view, headers={"etag": etag(found[0])})


async def approve(request: Request) -> Response:
    """`POST /v1/incidents/{id}/approve`, body `{"what": ID}`: one of the ids that the incident says it waits for."""
    service = service_of(request)
    name = request.path_params["incident"]
    wanted = await message_of(request, Approval, APPROVAL_BYTES_MAX)
    incident = service.engine.snapshot.incidents.get(name)
    if incident is None:
        raise Refusal(404, f"there is no open incident {name}", "see 'healthctl incidents list'")
    admit(service)
    waiting = [each.id for each in awaiting(incident)]
    if wanted.what not in waiting:
        todo = f"it waits for {', '.join(waiting)}" if waiting else "it waits for nobody's approval"
        raise Refusal(409, f"{name} does not wait for {wanted.what!r}", todo)
    item = Approved(
        at=service.clock.wall(), incident=name, what=wanted.what, actor=who(request).name, address=address(request)
    )
    await durable(service, submit(service, item))
    return Response(status_code=204)


async def events(request: Request) -> Response:
    """`GET /v1/events?after=SEQ&wait_s=N`: the audit log after SEQ; waits up to N seconds for the first line.

    With `since=T` those from T (UTC s) on.
    """
    service = service_of(request)
    after = int(number(request, "after", 0, 0, SEQ_MAX))
    if since := number(request, "since", 0, 0, MOMENT_MAX):
        after = max(after, await asyncio.to_thread(Listing(service.journal.engine).last_event_before, since))
    deadline = service.clock.monotonic() + number(request, "wait_s", 0, 0, WAIT_MAX_S)
    with service.wakeups.subscription() as woken:
        while True:
            found: list[tuple[int, AuditEvent]] = await asyncio.to_thread(
                service.journal.events, after, EVENTS_PER_ANSWER
            )
            left = deadline - service.clock.monotonic()
            if found or left <= 0 or service.wakeups.ended:
                return reply(EventList(tuple(event_view(seq, event) for seq, event in found)))
            try:
                await asyncio.wait_for(woken.wait(), left)
            except asyncio.TimeoutError:
                return reply(EventList(()))
            woken.clear()
            still_welcome(request)

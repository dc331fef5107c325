"""What operators call: nodes, incidents, the audit log."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access import address, still_welcome, who
from remediator.api.actions import etag
from remediator.api.render import (
    event_view,
    incident_lines,
    incident_view,
    node_list,
    node_view,
    word_view,
)
from remediator.api.service import (
    WAIT_MAX_S,
    Refusal,
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
from remediator.model.views import MOMENT_MAX, Approval, EventList
from remediator.store.listing import Listing
from remediator.store.story import StoryStore

INCIDENTS_LISTED = 200
NODES_MAX = 1_000_000
EVENTS_PER_ANSWER = 1000
SEQ_MAX = 2**53
APPROVAL_BYTES_MAX = 4096


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
        untold = frozenset(action.id for action in snapshot.actions.values() if action.untold)
    elif state == "all":
        found = await asyncio.to_thread(service.journal.recent_incidents, INCIDENTS_LISTED)
        named = sorted({finding for each in found if not each.injected for finding in each.findings})
        listing = Listing(service.journal.engine)
        injected = await asyncio.to_thread(listing.injected, named)
        untold = await asyncio.to_thread(listing.untold, [each.id for each in found])
    else:
        raise Refusal(400, f"state is {state!r}", "give open or all")
    return reply(incident_lines(found, injected, untold))


async def incident(request: Request) -> Response:
    """`GET /v1/incidents/{id}`, whole."""
    name, service = request.path_params["incident"], service_of(request)
    journal = service.journal
    found = await asyncio.to_thread(journal.incident, name)
    if found is None:
        raise Refusal(404, f"there is no incident {name}", "see 'healthctl incidents list'")
    events = await asyncio.to_thread(StoryStore(journal.engine).events, name)
    words = await asyncio.to_thread(Listing(journal.engine).words_of, name, found[0].findings)
    settings, nodes = service.engine.settings, service.engine.snapshot.nodes
    view = msgspec.structs.replace(
        incident_view(*found, events),
        proposed=proposed(found[0], settings.policy.by_name),
        word=word_view(found[1], words, nodes, settings.again_after_s),
    )
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

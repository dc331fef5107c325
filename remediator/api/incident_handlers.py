"""Handlers for incidents besides approval: acknowledge, note, resolve, reopen. All are inputs of the pipeline.

Each may be repeated safely. `If-Match` with the `ETag` of `GET /v1/incidents/{id}` makes a request apply only to that
state.
"""

from __future__ import annotations

import asyncio
import hashlib

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import client_address, request_identity
from remediator.api.handler_context import (
    Refusal,
    check_admission,
    decode_request_body,
    handler_context_of,
    submit_input,
    wait_until_durable,
)
from remediator.model.journal_records import Incident, IncidentState
from remediator.model.pipeline_inputs import BreakerReset, IncidentCommand, IncidentCommandKind, IncidentReopened
from remediator.model.views import CommandText
from remediator.store.incident_queries import IncidentQueries
from vocabulary.finding import Finding
from vocabulary.messages.wire import encode_message

WORDS_BYTES_MAX = 16 << 10
KEY_CHARS_MAX = 128


async def acknowledge_incident(request: Request) -> Response:
    """`POST /v1/incidents/{id}/acknowledge`: assign the incident to the caller."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    incident, _ = await _stored_incident(request)
    if incident.state is IncidentState.CLOSED:
        raise Refusal(409, f"{incident.id} is closed", "no acknowledgement is needed")
    return await _submit_incident_command(request, incident, IncidentCommandKind.ACKNOWLEDGE, words.text)


async def add_incident_note(request: Request) -> Response:
    """`POST /v1/incidents/{id}/notes`: with `Idempotency-Key`, a repetition is not written twice."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    if not words.text.strip():
        raise Refusal(400, "the note is empty", 'send {"text": …}')
    incident, _ = await _stored_incident(request)
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_CHARS_MAX:
        raise Refusal(400, f"Idempotency-Key is longer than {KEY_CHARS_MAX} characters")
    if key:
        store = IncidentQueries(handler_context_of(request).journal.engine)
        events = await asyncio.to_thread(store.events, incident.id)
        if any(
            e.kind == "note" and e.data.get("key") == key and e.actor == request_identity(request).name for e in events
        ):
            return Response(status_code=204)
    return await _submit_incident_command(request, incident, IncidentCommandKind.NOTE, words.text, key)


async def resolve_incident(request: Request) -> Response:
    """`POST /v1/incidents/{id}/resolve`: close it; planned actions are cancelled."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    incident, _ = await _stored_incident(request)
    if incident.state is IncidentState.CLOSED:
        return Response(status_code=204)
    if incident.state is IncidentState.ACTING:
        todo = "wait for it to end, or take over the node (drain it in the scheduler)"
        raise Refusal(409, f"a plan of {incident.id} is running", todo)
    record = handler_context_of(request).engine.snapshot.nodes.get(incident.node)
    if record is not None and record.held:
        todo = "resume it in the scheduler, and the incident closes automatically; if the node never returns, use 'nodes retire'"
        raise Refusal(409, f"the controller still holds {record.node} out of service", todo)
    return await _submit_incident_command(request, incident, IncidentCommandKind.RESOLVE, words.text)


async def reopen_incident(request: Request) -> Response:
    """`POST /v1/incidents/{id}/reopen`: it is decided again, and only an operator closes it again."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    incident, findings = await _stored_incident(request)
    if incident.state is not IncidentState.CLOSED:
        return Response(status_code=204)
    if incident.wide:
        raise Refusal(409, f"{incident.id} concerns many nodes", "such incidents reopen automatically")
    service = handler_context_of(request)
    other = next((i.id for i in service.engine.snapshot.incidents.values() if i.node == incident.node), None)
    if other is not None:
        raise Refusal(409, f"node {incident.node} has another open incident, {other}", "continue there")
    check_admission(service)
    item = IncidentReopened(
        at=service.clock.wall(),
        incident=incident,
        findings=tuple(findings),
        actor=request_identity(request).name,
        address=client_address(request),
        text=words.text,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)


async def reset_circuit_breaker(request: Request) -> Response:
    """`POST /v1/breaker/reset`: allow isolations again. Resetting a closed breaker changes nothing."""
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    service = handler_context_of(request)
    check_admission(service)
    item = BreakerReset(
        at=service.clock.wall(), actor=request_identity(request).name, address=client_address(request), text=words.text
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)


def incident_etag(incident: Incident) -> str:
    """Return a tag of one state of an incident."""
    return f'"{hashlib.sha256(encode_message(incident)).hexdigest()[:16]}"'


async def _stored_incident(request: Request) -> tuple[Incident, list[Finding]]:
    """Return the durable incident of the path.

    Raises:
        Refusal: 404, there is none; 412, it has changed since the caller read it.
    """
    name = request.path_params["incident"]
    found = await asyncio.to_thread(handler_context_of(request).journal.incident, name)
    if found is None:
        raise Refusal(404, f"incident {name} does not exist", "see 'healthctl incidents list'")
    seen = request.headers.get("if-match", "*")
    if seen != "*" and incident_etag(found[0]) not in [each.strip() for each in seen.split(",")]:
        raise Refusal(412, f"{name} has changed since you read it", "reload it and retry")
    return found[0], found[1]


async def _submit_incident_command(
    request: Request, incident: Incident, word: IncidentCommandKind, text: str, key: str = ""
) -> Response:
    service = handler_context_of(request)
    check_admission(service)
    item = IncidentCommand(
        at=service.clock.wall(),
        incident=incident.id,
        node=incident.node,
        word=word,
        actor=request_identity(request).name,
        address=client_address(request),
        text=text,
        key=key,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)

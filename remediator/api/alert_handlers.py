"""Handlers for notifications and silences. A silence mutes messages and blocks no action."""

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
    json_response,
    query_number,
    submit_input,
    wait_until_durable,
)
from remediator.api.incident_handlers import WORDS_BYTES_MAX
from remediator.model.delivery import Delivery, DeliveryState, NotificationPhase
from remediator.model.override_records import AlertSilence
from remediator.model.pipeline_inputs import AlertsSilenced, ReceiverTried, SilenceEnded
from remediator.model.views import CommandText
from remediator.model.views_alerts import (
    AlertList,
    AlertTest,
    AlertTested,
    AlertView,
    SilenceList,
    SilenceRequest,
    SilenceView,
)
from remediator.notifications.receiver_probe import send_test_messages
from remediator.overrides.cluster_overrides import find_matching_silence, list_open_silences
from remediator.store.delivery_store import DeliveryStore
from vocabulary.text.plurals import format_count

ALERTS_LISTED, ALERTS_MAX = 200, 1000
SILENCED = "silenced"
SILENCES_MAX = 1000


async def list_alerts(request: Request) -> Response:
    """`GET /v1/alerts?limit=N`, newest first."""
    service = handler_context_of(request)
    limit = int(query_number(request, "limit", ALERTS_LISTED, 1, ALERTS_MAX))

    def found() -> Response:
        now, known = service.clock.wall(), list_open_silences(service.engine.snapshot.operator_overrides)
        items = DeliveryStore(service.journal.engine).latest(limit)
        return json_response(AlertList(tuple(build_alert_view(item, known, now) for item in items)))

    return await asyncio.to_thread(found)


def build_alert_view(item: Delivery, known: tuple[AlertSilence, ...], now: float) -> AlertView:
    """Build one message to one receiver; one that waits although it is due may be silenced."""
    message, state, error, due = item.message, item.state.value, item.detail, item.due
    waits = item.state is DeliveryState.WAITING and item.phase is NotificationPhase.FIRE and not item.batch
    silence = find_matching_silence(known, message.node, item.kinds, now) if waits else None
    if silence is not None:
        state, due = SILENCED, max(due, silence.until)
        error = f"until the silence {silence.id} of {silence.actor} ends: {silence.why}"
    return AlertView(
        id=item.id,
        receiver=item.receiver,
        kind=message.kind,
        state=state,
        title=message.title or message.text,
        at=item.created_at,
        due=due,
        node=message.node,
        incident=message.incident,
        severity=message.severity.value,
        page=message.page,
        phase=item.phase.value,
        sent_at=item.sent_at,
        attempts=item.attempts,
        error="" if item.state is DeliveryState.SENT else error,
    )


async def list_silences(request: Request) -> Response:
    """`GET /v1/alerts/silences`."""
    known = list_open_silences(handler_context_of(request).engine.snapshot.operator_overrides)
    return json_response(SilenceList(tuple(build_silence_view(silence) for silence in known)))


def build_silence_view(silence: AlertSilence) -> SilenceView:
    """Build the view of one silence."""
    return SilenceView(
        silence.id, silence.match, silence.kinds, silence.since, silence.until, silence.actor, silence.why
    )


async def create_silence(request: Request) -> Response:
    """`POST /v1/alerts/silences`; a repeated request gives the same silence."""
    service = handler_context_of(request)
    body = await decode_request_body(request, SilenceRequest, WORDS_BYTES_MAX)
    now, actor = service.clock.wall(), request_identity(request).name
    if body.until <= now:
        raise Refusal(400, f"'until' is {body.until:.0f}, which is in the past", "give UTC seconds in the future")
    if not body.text.strip():
        raise Refusal(400, "the reason is empty", 'send {"text": …} with the reason for others')
    known = list_open_silences(service.engine.snapshot.operator_overrides)
    if len(known) >= SILENCES_MAX:
        raise Refusal(
            409, f"there are already {format_count(len(known), 'silence')}", "end some, or use wider patterns"
        )
    check_admission(service)
    named = "\x1f".join((actor, body.match, body.kinds, repr(body.until), body.text))
    name = f"sil-{hashlib.sha256(named.encode()).hexdigest()[:10]}"
    made = AlertSilence(name, body.match, body.kinds, now, body.until, actor, body.text)
    await wait_until_durable(
        service, submit_input(service, AlertsSilenced(at=now, silence=made, address=client_address(request)))
    )
    return json_response(build_silence_view(made))


async def end_silence(request: Request) -> Response:
    """`POST /v1/alerts/silences/{id}/end`: waiting messages are sent at once."""
    service, name = handler_context_of(request), request.path_params["silence"]
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    if name not in {each.id for each in list_open_silences(service.engine.snapshot.operator_overrides)}:
        raise Refusal(404, f"silence {name} does not exist or has ended", "see 'healthctl alerts silences'")
    check_admission(service)
    item = SilenceEnded(
        at=service.clock.wall(),
        silence=name,
        actor=request_identity(request).name,
        address=client_address(request),
        text=words.text,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)


async def send_test_alert(request: Request) -> Response:
    """`POST /v1/alerts/test`: send a test message to a receiver. It is stored before it is sent."""
    service = handler_context_of(request)
    body = await decode_request_body(request, AlertTest, WORDS_BYTES_MAX)
    config, actor = service.config, request_identity(request).name
    known = config.alerts.everyone
    if body.receiver not in known:
        todo = f"configured: {', '.join(known) or 'none; add one under alerts.receivers'}"
        raise Refusal(404, f"receiver {body.receiver} is not configured", todo)
    check_admission(service)
    now = service.clock.wall()
    item = ReceiverTried(at=now, receiver=body.receiver, actor=actor, address=client_address(request))
    await wait_until_durable(service, submit_input(service, item))

    def tried() -> AlertTested:
        answers = list(send_test_messages(config.alerts, config.cluster, body.receiver, actor, now))
        words = "; ".join(f"{phase.value}: {answer.words}" for phase, answer in answers)
        return AlertTested(body.receiver, all(answer.taken for _, answer in answers), words)

    return json_response(await asyncio.to_thread(tried))

"""What people were told or are to be, and what they wish not to hear for a time. A silence keeps nobody from acting."""

from __future__ import annotations

import asyncio
import hashlib

from starlette.requests import Request
from starlette.responses import Response

from remediator.act.webhooks.trial import try_out
from remediator.api.access import address, who
from remediator.api.actions import WORDS_BYTES_MAX
from remediator.api.service import Refusal, admit, durable, message_of, number, reply, service_of, submit
from remediator.model.delivery import Delivery, DeliveryState, Phase
from remediator.model.inputs import AlertsSilenced, ReceiverTried, SilenceEnded
from remediator.model.standing import AlertSilence
from remediator.model.views import Words
from remediator.model.views_alerts import (
    AlertList,
    AlertTest,
    AlertTested,
    AlertView,
    SilenceList,
    SilenceView,
    SilenceWish,
)
from remediator.standing import silenced, silences
from remediator.store.deliveries import DeliveryStore
from vocabulary.counts import counted

ALERTS_LISTED, ALERTS_MAX = 200, 1000
SILENCED = "silenced"
SILENCES_MAX = 1000


async def show(request: Request) -> Response:
    """`GET /v1/alerts?limit=N`, newest first."""
    service = service_of(request)
    limit = int(number(request, "limit", ALERTS_LISTED, 1, ALERTS_MAX))

    def found() -> Response:
        now, known = service.clock.wall(), silences(service.engine.snapshot.standing)
        items = DeliveryStore(service.journal.engine).latest(limit)
        return reply(AlertList(tuple(alert_view(item, known, now) for item in items)))

    return await asyncio.to_thread(found)


def alert_view(item: Delivery, known: tuple[AlertSilence, ...], now: float) -> AlertView:
    """One message to one receiver; what waits although its time has come may be silenced."""
    message, state, error, due = item.message, item.state.value, item.detail, item.due
    waits = item.state is DeliveryState.WAITING and item.phase is Phase.FIRE and not item.batch
    silence = silenced(known, message.node, item.kinds, now) if waits else None
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


async def show_silences(request: Request) -> Response:
    """`GET /v1/alerts/silences`."""
    known = silences(service_of(request).engine.snapshot.standing)
    return reply(SilenceList(tuple(silence_view(silence) for silence in known)))


def silence_view(silence: AlertSilence) -> SilenceView:
    """One silence."""
    return SilenceView(
        silence.id, silence.match, silence.kinds, silence.since, silence.until, silence.actor, silence.why
    )


async def silence(request: Request) -> Response:
    """`POST /v1/alerts/silences`; asking for the same once more is the same silence."""
    service = service_of(request)
    wish = await message_of(request, SilenceWish, WORDS_BYTES_MAX)
    now, actor = service.clock.wall(), who(request).name
    if wish.until <= now:
        raise Refusal(400, f"'until' is {wish.until:.0f}, and that is over", "give UTC seconds that are to come")
    if not wish.text.strip():
        raise Refusal(400, "the reason is empty", 'send {"text": …}: others will want to know')
    known = silences(service.engine.snapshot.standing)
    if len(known) >= SILENCES_MAX:
        raise Refusal(409, f"there are {counted(len(known), 'silence')} already", "end some, or use wider patterns")
    admit(service)
    named = "\x1f".join((actor, wish.match, wish.kinds, repr(wish.until), wish.text))
    name = f"sil-{hashlib.sha256(named.encode()).hexdigest()[:10]}"
    made = AlertSilence(name, wish.match, wish.kinds, now, wish.until, actor, wish.text)
    await durable(service, submit(service, AlertsSilenced(at=now, silence=made, address=address(request))))
    return reply(silence_view(made))


async def end(request: Request) -> Response:
    """`POST /v1/alerts/silences/{id}/end`: what waits is told at once."""
    service, name = service_of(request), request.path_params["silence"]
    words = await message_of(request, Words, WORDS_BYTES_MAX)
    if name not in {each.id for each in silences(service.engine.snapshot.standing)}:
        raise Refusal(404, f"there is no silence {name}, or it has ended", "see 'healthctl alerts silences'")
    admit(service)
    item = SilenceEnded(
        at=service.clock.wall(), silence=name, actor=who(request).name, address=address(request), text=words.text
    )
    await durable(service, submit(service, item))
    return Response(status_code=204)


async def test(request: Request) -> Response:
    """`POST /v1/alerts/test`: send a receiver a message that says that nothing is wrong. Written down before it is sent."""
    service = service_of(request)
    wish = await message_of(request, AlertTest, WORDS_BYTES_MAX)
    config, actor = service.config, who(request).name
    known = config.alerts.everyone
    if wish.receiver not in known:
        todo = f"there are: {', '.join(known) or 'none; add one under alerts.receivers'}"
        raise Refusal(404, f"there is no receiver {wish.receiver}", todo)
    admit(service)
    now = service.clock.wall()
    item = ReceiverTried(at=now, receiver=wish.receiver, actor=actor, address=address(request))
    await durable(service, submit(service, item))

    def tried() -> AlertTested:
        answers = list(try_out(config.alerts, config.cluster, wish.receiver, actor, now))
        words = "; ".join(f"{phase.value}: {answer.words}" for phase, answer in answers)
        return AlertTested(wish.receiver, all(answer.taken for _, answer in answers), words)

    return reply(await asyncio.to_thread(tried))

"""What operators say of the whole cluster, and of single actions: how far automation may go, and what is not to be done after all."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access import address, who
from remediator.api.actions import WORDS_BYTES_MAX
from remediator.api.service import Refusal, admit, durable, message_of, service_of, submit
from remediator.model.inputs import ActionCancelled, ModeSet
from remediator.model.plan import Mode, Verb
from remediator.model.views import Words
from remediator.model.views_work import ModeWish
from remediator.store.listing import Listing


async def set_mode(request: Request) -> Response:
    """`POST /v1/mode`: until somebody says otherwise, whatever the configuration says; an empty mode gives it back its say."""
    service = service_of(request)
    wish = await message_of(request, ModeWish, WORDS_BYTES_MAX)
    admit(service)
    item = ModeSet(
        at=service.clock.wall(),
        mode=Mode(wish.mode) if wish.mode else None,
        actor=who(request).name,
        address=address(request),
        text=wish.text,
    )
    await durable(service, submit(service, item))
    return Response(status_code=204)


async def cancel(request: Request) -> Response:
    """`POST /v1/actions/{id}/cancel`: not to be done; the rest of its plan is left to people. What was begun may still end."""
    service, name = service_of(request), request.path_params["action"]
    words = await message_of(request, Words, WORDS_BYTES_MAX)
    action = service.engine.snapshot.actions.get(name)
    if action is None or action.state.final:
        known = action or await asyncio.to_thread(Listing(service.journal.engine).action, name)
        if known is None:
            raise Refusal(404, f"there is no action {name}", "see 'healthctl actions list'")
        raise Refusal(409, f"{name} is over: {known.state.value}", "what is done cannot be cancelled")
    if action.verb == Verb.CORDON.value:
        todo = f"'healthctl nodes hold {action.node}' withdraws it, 'nodes uncordon' lifts it"
        raise Refusal(409, f"{name} keeps a state, it is no deed that could be cancelled", todo)
    admit(service)
    item = ActionCancelled(
        at=service.clock.wall(), action=name, actor=who(request).name, address=address(request), text=words.text
    )
    await durable(service, submit(service, item))
    return Response(status_code=204)

"""Handlers for cluster-wide overrides: the automation mode, and cancellation of actions."""

from __future__ import annotations

import asyncio

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
from remediator.api.incident_handlers import WORDS_BYTES_MAX
from remediator.model.pipeline_inputs import ActionCancelled, ModeSet
from remediator.model.plan_steps import Mode, Verb
from remediator.model.views import CommandText
from remediator.model.views_actions import ModeRequest
from remediator.store.history_queries import HistoryQueries


async def set_automation_mode(request: Request) -> Response:
    """`POST /v1/mode`: overrides the configured mode until changed; an empty mode ends the override."""
    service = handler_context_of(request)
    body = await decode_request_body(request, ModeRequest, WORDS_BYTES_MAX)
    check_admission(service)
    item = ModeSet(
        at=service.clock.wall(),
        mode=Mode(body.mode) if body.mode else None,
        actor=request_identity(request).name,
        address=client_address(request),
        text=body.text,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)


async def cancel_action(request: Request) -> Response:
    """`POST /v1/actions/{id}/cancel`: the rest of its plan is left to operators. A running action may still finish."""
    service, name = handler_context_of(request), request.path_params["action"]
    words = await decode_request_body(request, CommandText, WORDS_BYTES_MAX)
    action = service.engine.snapshot.actions.get(name)
    if action is None or action.state.final:
        known = action or await asyncio.to_thread(HistoryQueries(service.journal.engine).action, name)
        if known is None:
            raise Refusal(404, f"action {name} does not exist", "see 'healthctl actions list'")
        raise Refusal(409, f"{name} has ended: {known.state.value}", "a finished action cannot be cancelled")
    if action.verb == Verb.CORDON.value:
        todo = f"withdraw it with 'healthctl nodes hold {action.node}', or lift it with 'nodes uncordon'"
        raise Refusal(409, f"{name} maintains a state and cannot be cancelled", todo)
    check_admission(service)
    item = ActionCancelled(
        at=service.clock.wall(),
        action=name,
        actor=request_identity(request).name,
        address=client_address(request),
        text=words.text,
    )
    await wait_until_durable(service, submit_input(service, item))
    return Response(status_code=204)

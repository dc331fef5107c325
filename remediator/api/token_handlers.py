"""Token handlers: admins issue, list, rotate and revoke them; nodes enrol with a join secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access_control import audit_actor
from remediator.api.handler_context import Refusal, decode_request_body, handler_context_of, json_response
from remediator.model.credentials import Role, TokenList, find_credential_misfit
from remediator.model.views import Rotation, TokenRequest
from remediator.store.token_store import EnrolmentRefused
from vocabulary.messages.wire import Enrolment, NewToken

REQUEST_BYTES_MAX = 4096

T = TypeVar("T")


async def issue_token(request: Request) -> Response:
    """`POST /v1/tokens`: only this response contains the token."""
    body = await decode_request_body(request, TokenRequest, REQUEST_BYTES_MAX)
    if why := find_credential_misfit(body.role, body.name, body.uses, replaces=body.replaces):
        raise Refusal(400, why)
    service = handler_context_of(request)
    now = service.clock.wall()
    until = None if body.expires_s is None else now + body.expires_s
    who = audit_actor(request)
    tokens = service.tokens
    token = await _run_in_database(
        lambda: tokens.issue(
            body.role, body.name, now, actor=who, expires_at=until, uses=body.uses, replaces=body.replaces
        )
    )
    return json_response(NewToken(token))


async def list_tokens(request: Request) -> Response:
    """`GET /v1/tokens`: all tokens ever issued, without their text, which is not stored."""
    return json_response(TokenList(tuple(await _run_in_database(handler_context_of(request).tokens.all))))


async def rotate_token(request: Request) -> Response:
    """`POST /v1/tokens/rotate`: a new token for a name; its old ones end after the overlap."""
    body = await decode_request_body(request, Rotation, REQUEST_BYTES_MAX)
    service, who = handler_context_of(request), audit_actor(request)
    now = service.clock.wall()
    if body.role is Role.JOIN:
        raise Refusal(400, "join secrets cannot be rotated; revoke this one and issue another")
    try:
        until = None if body.expires_s is None else now + body.expires_s
        token = await _run_in_database(
            lambda: service.tokens.rotate(body.role, body.name, now, body.overlap_s, actor=who, expires_at=until)
        )
    except LookupError as error:
        raise Refusal(404, str(error.args[0])) from error
    return json_response(NewToken(token))


async def revoke_token(request: Request) -> Response:
    """`POST /v1/tokens/{id}/revoke`: effective at once, also for open requests."""
    service, who, token_id = handler_context_of(request), audit_actor(request), request.path_params["token"]
    gone = await _run_in_database(lambda: service.tokens.revoke(service.clock.wall(), actor=who, token_id=token_id))
    if not gone and all(token.id != token_id for token in await _run_in_database(service.tokens.all)):
        raise Refusal(404, f"token {token_id} does not exist", "see 'remediator token list'")
    service.wakeups.wake()
    return Response(status_code=204)


async def enrol_node(request: Request) -> Response:
    """`POST /v1/enrol`: a node's own token for a join secret. A node that made its token itself may retry."""
    body = await decode_request_body(request, Enrolment, REQUEST_BYTES_MAX)
    if why := find_credential_misfit(Role.NODE, body.node, None, replaces=False):
        raise Refusal(400, why)
    service, who, secret = handler_context_of(request), audit_actor(request), request.state.secret
    now = service.clock.wall()
    try:
        tokens, by = service.tokens, f"join secret {who}"
        token = await _run_in_database(lambda: tokens.enrol(secret, body.node, now, mine=body.digest, actor=by))
    except EnrolmentRefused as error:
        raise Refusal(403, str(error), "ask an admin") from error
    return json_response(NewToken(token))


async def _run_in_database(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except SQLAlchemyError as error:
        raise Refusal(503, "the database is unavailable; nothing was changed", "try again later", 5) from error

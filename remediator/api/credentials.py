"""Tokens over HTTP: admins issue, list, rotate and revoke them; nodes enrol with a join secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.access import actor
from remediator.api.service import Refusal, message_of, reply, service_of
from remediator.model.credentials import Role, TokenList, misfit
from remediator.model.views import Rotation, TokenWish
from remediator.store.tokens import EnrolmentRefused
from vocabulary.wire import Enrolment, NewToken

WISH_BYTES_MAX = 4096

T = TypeVar("T")


async def issue(request: Request) -> Response:
    """`POST /v1/tokens`: the answer is the only time the token is told."""
    wish = await message_of(request, TokenWish, WISH_BYTES_MAX)
    if why := misfit(wish.role, wish.name, wish.uses, replaces=wish.replaces):
        raise Refusal(400, why)
    service = service_of(request)
    now = service.clock.wall()
    until = None if wish.expires_s is None else now + wish.expires_s
    who = actor(request)
    tokens = service.tokens
    token = await _stored(
        lambda: tokens.issue(
            wish.role, wish.name, now, actor=who, expires_at=until, uses=wish.uses, replaces=wish.replaces
        )
    )
    return reply(NewToken(token))


async def listed(request: Request) -> Response:
    """`GET /v1/tokens`: all there ever were, without their text, which nobody has."""
    return reply(TokenList(tuple(await _stored(service_of(request).tokens.all))))


async def rotate(request: Request) -> Response:
    """`POST /v1/tokens/rotate`: a new token for a name; those it has end after the overlap."""
    wish = await message_of(request, Rotation, WISH_BYTES_MAX)
    service, who = service_of(request), actor(request)
    now = service.clock.wall()
    if wish.role is Role.JOIN:
        raise Refusal(400, "join secrets are not rotated; revoke the old one and issue another")
    try:
        until = None if wish.expires_s is None else now + wish.expires_s
        token = await _stored(
            lambda: service.tokens.rotate(wish.role, wish.name, now, wish.overlap_s, actor=who, expires_at=until)
        )
    except LookupError as error:
        raise Refusal(404, str(error.args[0])) from error
    return reply(NewToken(token))


async def revoke(request: Request) -> Response:
    """`POST /v1/tokens/{id}/revoke`: it counts at once, also for requests that are open."""
    service, who, token_id = service_of(request), actor(request), request.path_params["token"]
    gone = await _stored(lambda: service.tokens.revoke(service.clock.wall(), actor=who, token_id=token_id))
    if not gone and all(token.id != token_id for token in await _stored(service.tokens.all)):
        raise Refusal(404, f"there is no token {token_id}", "see 'remediator token list'")
    service.wakeups.wake()
    return Response(status_code=204)


async def enrol(request: Request) -> Response:
    """`POST /v1/enrol`: a node's own token for a join secret. A node that made its token itself may ask again."""
    wish = await message_of(request, Enrolment, WISH_BYTES_MAX)
    if why := misfit(Role.NODE, wish.node, None, replaces=False):
        raise Refusal(400, why)
    service, who, secret = service_of(request), actor(request), request.state.secret
    now = service.clock.wall()
    try:
        tokens, by = service.tokens, f"join secret {who}"
        token = await _stored(lambda: tokens.enrol(secret, wish.node, now, mine=wish.digest, actor=by))
    except EnrolmentRefused as error:
        raise Refusal(403, str(error), "ask an admin") from error
    return reply(NewToken(token))


async def _stored(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except SQLAlchemyError as error:
        raise Refusal(503, "the database is away; nothing was changed", "try again later", 5) from error

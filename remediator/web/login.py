"""Login with a token, and logout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from remediator.api.access import address, count, identity_of, slow_down_strangers
from remediator.api.service import Refusal, body_of, service_of
from remediator.web import people, rendering
from remediator.web.fields import fields_of
from remediator.web.origin import path_here
from remediator.web.visit import FORM_BYTES_MAX, Visit, bare

Handler = Callable[[Request], Awaitable[Response]]

HOUR_S = 3600.0
LOGIN_WEIGHT = 10  # requests: it is written down


async def show(request: Request) -> Response:
    """`GET /login`: where a token is taken. Who is logged in already goes on."""
    target = path_here(request.query_params.get("next", "/"))
    if _is_logged_in(request):
        return RedirectResponse(target, 303, rendering.HEADERS)
    return _form(request, target)


async def enter(request: Request) -> Response:
    """`POST /login`: a token for a session."""
    if not people.from_here(request):
        raise Refusal(403, "this was not sent by our own login page", "open /login here and send it from there")
    fields = fields_of(await body_of(request, FORM_BYTES_MAX))
    target = path_here(fields.get("next", "/"))
    service = service_of(request)
    try:
        identity = await identity_of(request, fields.get("token", "").strip())
    except Refusal as refusal:
        return _form(request, target, refusal.problem.error, refusal.status, refusal.headers)
    if identity.role not in people.MAY_LOOK:
        slow_down_strangers(request)
        words = (
            f"this token is {identity.role.value} {identity.name}'s; pages need a viewer's, an operator's or an admin's"
        )
        return _form(request, target, words, 403)
    try:
        count(request, identity, LOGIN_WEIGHT)
    except Refusal as refusal:
        return _form(request, target, refusal.problem.error, refusal.status, refusal.headers)
    lasts_s = service.config.web.session_h * HOUR_S
    by, now = f"{identity.name} ({address(request)})", service.clock.wall()
    secret = await asyncio.to_thread(service.sessions.begin, identity, now, lasts_s, by)
    service.wakeups.wake(())  # the oldest of too many may have ended: its stream ends with it
    response = RedirectResponse(target, 303, rendering.HEADERS)
    people.keep(request, response, secret, lasts_s)
    return response


async def leave(visit: Visit) -> Response:
    """`POST /logout`."""
    request, who = visit.request, visit.identity
    if visit.person.session:
        by = f"{who.name} ({address(request)})"
        await asyncio.to_thread(visit.service.sessions.end, visit.person.session, who.name, by, visit.now)
        visit.service.wakeups.wake(())  # its streams end now
    response = RedirectResponse("/login", 303, rendering.HEADERS)
    people.keep(request, response, "", 0)
    return response


def _is_logged_in(request: Request) -> bool:
    """Who shows a wrong session too often may still log in."""
    try:
        return people.person(request) is not None
    except Refusal:
        return False


def _form(
    request: Request, target: str, wrong: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    service = service_of(request)
    values = {
        **bare(request, "Log in", service.clock.wall()),
        "cluster": service.config.cluster,
        "target": target,
        "wrong": wrong,
        "hours": service.config.web.session_h,
    }
    text = rendering.render("login.html.j2", values)
    return Response(text, status, {**rendering.HEADERS, **(headers or {})}, media_type="text/html")

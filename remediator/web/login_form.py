"""Login with a token, and logout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from remediator.api.access_control import client_address, count_request, identity_of, limit_unknown_clients
from remediator.api.handler_context import Refusal, handler_context_of, read_request_body
from remediator.web import page_authentication, template_rendering
from remediator.web.csrf_protection import local_redirect_path
from remediator.web.form_fields import parse_form_fields
from remediator.web.page_request import FORM_BYTES_MAX, PageRequest, bare_page_values

Handler = Callable[[Request], Awaitable[Response]]

HOUR_S = 3600.0
LOGIN_WEIGHT = 10  # requests: each login writes to the store


async def show_login(request: Request) -> Response:
    """`GET /login`: the form; redirects if the browser already has a valid session."""
    target = local_redirect_path(request.query_params.get("next", "/"))
    if _is_logged_in(request):
        return RedirectResponse(target, 303, template_rendering.HEADERS)
    return _login_page(request, target)


async def submit_login(request: Request) -> Response:
    """`POST /login`: exchange a token for a session."""
    if not page_authentication.is_own_form(request):
        raise Refusal(403, "the form was not sent by this controller's login page", "open /login and log in there")
    fields = parse_form_fields(await read_request_body(request, FORM_BYTES_MAX))
    target = local_redirect_path(fields.get("next", "/"))
    service = handler_context_of(request)
    try:
        identity = await identity_of(request, fields.get("token", "").strip())
    except Refusal as refusal:
        return _login_page(request, target, refusal.problem.error, refusal.status, refusal.headers)
    if identity.role not in page_authentication.VIEW_ROLES:
        limit_unknown_clients(request)
        words = (
            f"this is a {identity.role.value} token ({identity.name}); the pages need a viewer, operator or admin token"
        )
        return _login_page(request, target, words, 403)
    try:
        count_request(request, identity, LOGIN_WEIGHT)
    except Refusal as refusal:
        return _login_page(request, target, refusal.problem.error, refusal.status, refusal.headers)
    lasts_s = service.config.web.session_h * HOUR_S
    by, now = f"{identity.name} ({client_address(request)})", service.clock.wall()
    secret = await asyncio.to_thread(service.sessions.begin, identity, now, lasts_s, by)
    service.wakeups.wake(())  # the login may have ended the person's oldest session: end its stream too
    response = RedirectResponse(target, 303, template_rendering.HEADERS)
    page_authentication.set_session_cookie(request, response, secret, lasts_s)
    return response


async def submit_logout(visit: PageRequest) -> Response:
    """`POST /logout`: end the session and its streams."""
    request, who = visit.request, visit.identity
    if visit.person.session:
        by = f"{who.name} ({client_address(request)})"
        await asyncio.to_thread(visit.service.sessions.end, visit.person.session, who.name, by, visit.now)
        visit.service.wakeups.wake(())  # end its streams now
    response = RedirectResponse("/login", 303, template_rendering.HEADERS)
    page_authentication.set_session_cookie(request, response, "", 0)
    return response


def _is_logged_in(request: Request) -> bool:
    """Whether the session is valid; a client that is rate-limited for unknown sessions may still log in."""
    try:
        return page_authentication.authenticate_page_user(request) is not None
    except Refusal:
        return False


def _login_page(
    request: Request, target: str, wrong: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    service = handler_context_of(request)
    values = {
        **bare_page_values(request, "Log in", service.clock.wall()),
        "cluster": service.config.cluster,
        "target": target,
        "wrong": wrong,
        "hours": service.config.web.session_h,
    }
    text = template_rendering.render_page("login.html.j2", values)
    return Response(text, status, {**template_rendering.HEADERS, **(headers or {})}, media_type="text/html")

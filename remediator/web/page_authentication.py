"""Authenticates users of the pages, by a trusted proxy or by a session that belongs to a token."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from remediator.api import trusted_proxy
from remediator.api.access_control import limit_unknown_clients, peer_address
from remediator.api.handler_context import HandlerContext, handler_context_of
from remediator.model.credentials import Identity, Role
from remediator.server_config import TrustedProxy
from remediator.web.csrf_protection import is_same_origin

SECRET_CHARS_MAX = 100
PROXY_STREAM_S = 3600.0  # an open stream of a proxy user ends after this time, so that the proxy is asked again
VIEW_ROLES = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
_FORMS = secrets.token_urlsafe(32)  # for CSRF tokens of proxy users, who have no session
NAME_MAX = 200
PROXY_ID = "proxy:"  # no token's id has a colon
EVERYBODY = "*"


class PageUser(NamedTuple):
    """A user who may view pages. `holds` says whether they still may; `secret` binds forms to them."""

    identity: Identity
    secret: str
    holds: Callable[[Identity], bool]
    session: str = ""  # empty for a proxy user


def authenticate_page_user(request: Request) -> PageUser | None:
    """The user of a request, or None.

    Raises:
        Refusal: 429, too many unknown sessions from this address.
    """
    service = handler_context_of(request)
    trusted = service.config.web.proxy
    if trusted is not None and trusted_proxy.is_proxy_address(trusted, peer_address(request)):
        headers = request.headers
        named = identity_from_headers(
            trusted, headers.getlist(trusted.user_header), headers.getlist(trusted.groups_header)
        )
        if named is not None:
            until = service.clock.monotonic() + PROXY_STREAM_S
            return PageUser(named, f"{_FORMS}:{named.id}", lambda _who: service.clock.monotonic() < until)
    secret = request.cookies.get(cookie_name(request), "")
    return _user_by_session(request, service, secret) if 0 < len(secret) <= SECRET_CHARS_MAX else None


def _user_by_session(request: Request, service: HandlerContext, secret: str) -> PageUser | None:
    sessions, wall = service.sessions, service.clock.wall
    session = sessions.find(secret, wall())
    if session is None:  # limits only unknown sessions: others behind the same address are not locked out
        limit_unknown_clients(request)
        return None
    identity = service.tokens.named(session.token_id)
    if identity is None or identity.role not in VIEW_ROLES:
        return None

    def holds(who: Identity) -> bool:
        return service.tokens.holds(who) and sessions.find(secret, wall()) is not None

    return PageUser(identity, secret, holds, session=secret)


def is_secure(request: Request) -> bool:
    """Whether the browser's connection is encrypted: by this server's TLS, a trusted proxy, or the configured URL."""
    config = handler_context_of(request).config
    if config.tls is not None or config.web.url.startswith("https://"):
        return True
    by_proxy = trusted_proxy.is_proxy_address(config.web.proxy, peer_address(request))
    return by_proxy and request.headers.get("x-forwarded-proto", "") == "https"


def cookie_name(request: Request) -> str:
    """The session cookie's name; browsers accept the `__Host-` prefix over encrypted connections and for this host only."""
    return "__Host-gpu-healthd" if is_secure(request) else "gpu-healthd"


def set_session_cookie(request: Request, response: Response, secret: str, lasts_s: float) -> None:
    """Set the session cookie for `lasts_s` seconds; an empty secret deletes it."""
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(lasts_s) if secret else 0,
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="strict",
    )


def is_own_form(request: Request) -> bool:
    """Whether a POST comes from one of this controller's pages."""
    headers = request.headers
    hosts = {headers.get("host", "")}
    if trusted_proxy.is_proxy_address(handler_context_of(request).config.web.proxy, peer_address(request)):
        hosts.add(headers.get("x-forwarded-host", ""))
    return is_same_origin(headers.get("sec-fetch-site"), headers.get("origin"), frozenset(hosts - {""}))


def identity_from_headers(proxy: TrustedProxy, users: Sequence[str], groups: Sequence[str]) -> Identity | None:
    """The identity in the proxy's headers; None if they name no user, several users, or a user without a role. Pure.

    The headers count only on the proxy's own connections and only if they occur once: a repeated one may come from the
    user.
    """
    name = users[0].strip() if len(users) == 1 and len(groups) <= 1 else ""
    if not name or len(name) > NAME_MAX or not name.isprintable():
        return None
    theirs = {EVERYBODY, *(group.strip() for line in groups for group in line.split(",") if group.strip())}
    for role in (Role.ADMIN, Role.OPERATOR, Role.VIEWER):
        if theirs & set(getattr(proxy.roles, role.value)):
            return Identity(role, name, f"{PROXY_ID}{name}")
    return None

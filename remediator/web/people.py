"""Who looks at a page: by the word of a trusted proxy, or by a session that rests on a token."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from remediator.api import proxied
from remediator.api.access import peer, slow_down_strangers
from remediator.api.service import Service, service_of
from remediator.model.credentials import Identity, Role
from remediator.web import proxy
from remediator.web.origin import same_origin

SECRET_CHARS_MAX = 100
PROXY_STREAM_S = 3600.0  # an open stream asks the proxy again so often
MAY_LOOK = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
_FORMS = secrets.token_urlsafe(32)  # of those whom the proxy names: they have no session of ours


class Person(NamedTuple):
    """Somebody who may look. `holds` says whether they still may, `secret` binds forms to them."""

    identity: Identity
    secret: str
    holds: Callable[[Identity], bool]
    session: str = ""  # empty: the proxy says who it is


def person(request: Request) -> Person | None:
    """Who asks, if anybody may say so.

    Raises:
        Refusal: 429, too many unknown sessions were shown from this address.
    """
    service = service_of(request)
    trusted = service.config.web.proxy
    if trusted is not None and proxied.speaks(trusted, peer(request)):
        headers = request.headers
        named = proxy.identity(trusted, headers.getlist(trusted.user_header), headers.getlist(trusted.groups_header))
        if named is not None:
            until = service.clock.monotonic() + PROXY_STREAM_S
            return Person(named, f"{_FORMS}:{named.id}", lambda _who: service.clock.monotonic() < until)
    secret = request.cookies.get(cookie_name(request), "")
    return _by_session(request, service, secret) if 0 < len(secret) <= SECRET_CHARS_MAX else None


def _by_session(request: Request, service: Service, secret: str) -> Person | None:
    sessions, wall = service.sessions, service.clock.wall
    session = sessions.find(secret, wall())
    if session is None:  # only then: nobody can be kept out by a neighbour behind the same address
        slow_down_strangers(request)
        return None
    identity = service.tokens.named(session.token_id)
    if identity is None or identity.role not in MAY_LOOK:
        return None

    def holds(who: Identity) -> bool:
        return service.tokens.holds(who) and sessions.find(secret, wall()) is not None

    return Person(identity, secret, holds, session=secret)


def is_secure(request: Request) -> bool:
    """Whether the browser's connection is encrypted: to us, to the proxy that says so, or by the address people come by."""
    config = service_of(request).config
    if config.tls is not None or config.web.url.startswith("https://"):
        return True
    by_proxy = proxied.speaks(config.web.proxy, peer(request))
    return by_proxy and request.headers.get("x-forwarded-proto", "") == "https"


def cookie_name(request: Request) -> str:
    """With the prefix, browsers take it over encrypted connections and for this host alone."""
    return "__Host-gpu-healthd" if is_secure(request) else "gpu-healthd"


def keep(request: Request, response: Response, secret: str, lasts_s: float) -> None:
    """Have the browser keep a session; without a secret, forget it."""
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(lasts_s) if secret else 0,
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="strict",
    )


def from_here(request: Request) -> bool:
    """Whether a POST comes from one of our own pages."""
    headers = request.headers
    hosts = {headers.get("host", "")}
    if proxied.speaks(service_of(request).config.web.proxy, peer(request)):
        hosts.add(headers.get("x-forwarded-host", ""))
    return same_origin(headers.get("sec-fetch-site"), headers.get("origin"), frozenset(hosts - {""}))

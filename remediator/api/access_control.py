"""Access control: a handler runs only after the caller's token was checked against its route's rule."""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from remediator.api import trusted_proxy
from remediator.api.handler_context import Refusal, handler_context_of
from remediator.model.credentials import Identity, Role
from remediator.server_config import AccessLimits

NAME_MAX = 255  # limit of node and user names in the database


class Access(enum.Enum):
    """The minimum role of a caller."""

    ANYONE = "anyone"
    JOIN = "a join secret"
    NODE = "that node"
    JOB = "viewer, or a node with ranks of the job"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    INGEST = "ingest"


_PEOPLE = {
    Access.JOB: {Role.VIEWER, Role.OPERATOR, Role.ADMIN},
    Access.VIEWER: {Role.VIEWER, Role.OPERATOR, Role.ADMIN},
    Access.OPERATOR: {Role.OPERATOR, Role.ADMIN},
    Access.ADMIN: {Role.ADMIN},
    Access.INGEST: {Role.INGEST},
}


def is_access_allowed(access: Access, identity: Identity, node: str | None) -> bool:
    """Return whether the rule admits this identity; `node` is the one in the path, if any."""
    if access is Access.NODE:
        return identity.role is Role.NODE and identity.name == node
    if access is Access.JOIN:
        return identity.role is Role.JOIN
    if access is Access.JOB and identity.role is Role.NODE:
        return True  # the handler checks that it holds a rank of the job
    return identity.role in _PEOPLE.get(access, set())


async def authorize_request(request: Request, access: Access) -> None:
    """Check a request against its route's rule; stores the identity with the request.

    Raises:
        Refusal: 401 without a valid token, 403 with another's, 429 too many requests.
    """
    if access is Access.ANYONE:
        return
    identity, token = await _identify_bearer(request)
    if identity.role is Role.NODE and (misfit := _certificate_refusal(request, identity)):
        limit_unknown_clients(request)  # a copied token must not use up its node's rate
        raise misfit
    admit_identity(request, access, identity)
    request.state.secret = token if access is Access.JOIN else ""


def admit_identity(request: Request, access: Access, identity: Identity) -> None:
    """Admit an identity from a token or from a page's session.

    Raises:
        Refusal: 403 not with this identity, 429 too many requests.
    """
    count_request(request, identity)
    require_access(access, identity, request.path_params.get("node"))
    request.state.identity = identity


def count_request(request: Request, identity: Identity, weight: int = 1) -> None:
    """Count a request of a known identity with this weight.

    Raises:
        Refusal: 429 too many requests.
    """
    gate = handler_context_of(request).gate
    if identity.role is Role.INGEST:  # each message in its batches is counted for its node
        _count_connection(request, identity, gate.limits)
        return
    bucket = gate.nodes if identity.role is Role.NODE else gate.people
    if (wait_s := bucket.wait_s(identity.id)) > 0:
        raise _too_many_requests(f"{identity.role.value} {identity.name} sends too many requests", wait_s)
    bucket.charge(identity.id, weight - 1)
    _count_connection(request, identity, gate.limits)


def require_access(access: Access, identity: Identity, node: str | None = None) -> None:
    """Raises: Refusal: 403, the rule does not admit this identity."""
    if not is_access_allowed(access, identity, node):
        raise _forbidden_refusal(access, identity, node)


def request_identity(request: Request) -> Identity:
    """Return the admitted identity."""
    identity: Identity = request.state.identity
    return identity


def audit_actor(request: Request) -> str:
    """Return the admitted identity and its address, for the audit log."""
    return f"{request_identity(request).name} ({client_address(request)})"


def client_address(request: Request) -> str:
    """Return the caller's address for the audit log: from the trusted proxy, otherwise as `peer_address`."""
    known: str | None = getattr(request.state, "address", None)  # pages call the API without their headers
    if known is not None:
        return known
    proxy = handler_context_of(request).config.web.proxy
    return trusted_proxy.client_behind_proxy(
        proxy, peer_address(request), request.headers.getlist(trusted_proxy.FORWARDED)
    )


def peer_address(request: Request) -> str:
    """Return the peer's address; empty for a UNIX socket. Limits use it."""
    return request.client.host if request.client else ""


def check_open_request(request: Request) -> None:
    """Check whether an open request may go on.

    Raises:
        Refusal: 401, its token was revoked or has expired meanwhile.
    """
    holds: Callable[[Identity], bool] = getattr(request.state, "holds", handler_context_of(request).tokens.holds)
    if not holds(request_identity(request)):
        raise Refusal(401, "this token was revoked or has expired in the meantime", "ask an admin for a new one")


async def _identify_bearer(request: Request) -> tuple[Identity, str]:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        limit_unknown_clients(request)
        todo = "send 'Authorization: Bearer TOKEN'; a token comes from 'healthctl token issue'"
        raise Refusal(401, "no token was sent", todo)
    return await identity_of(request, token), token


async def identity_of(request: Request, token: str) -> Identity:
    """Return the identity of a token.

    Raises:
        Refusal: 401 unknown token, 429 too many unknown tokens, 503 the database is unavailable.
    """
    tokens = handler_context_of(request).tokens
    if (known := tokens.identify(token)) is not None:
        return known  # before any limit: a neighbour behind the same address must not lock it out
    limit_unknown_clients(request)
    try:
        await asyncio.to_thread(tokens.refresh)  # another process may have issued it just now
    except SQLAlchemyError as error:
        raise Refusal(503, "the token cannot be checked: the database is unavailable", "try again later", 1) from error
    identity = tokens.identify(token)
    if identity is None:
        todo = "an admin can issue a new one: 'healthctl token issue'"
        raise Refusal(401, "this token is unknown, expired or revoked", todo)
    return identity


def limit_unknown_clients(request: Request) -> None:
    """Raises: Refusal: 429, too many requests of this address came without a valid token."""
    if (wait_s := handler_context_of(request).gate.unknown.wait_s(peer_address(request))) > 0:
        raise _too_many_requests("too many requests without a valid token from this address", wait_s)


def _count_connection(request: Request, identity: Identity, limits: AccessLimits) -> None:
    if identity.role is Role.JOIN:  # a fleet shares it; each node will use a token of its own
        return
    most = limits.connections_per_node if identity.role is Role.NODE else limits.connections_per_person
    request.scope.get("known", lambda _whose, _most: None)(identity.id, most)


def _too_many_requests(words: str, wait_s: float) -> Refusal:
    refusal = Refusal(429, words, "send fewer requests", math.ceil(wait_s))
    refusal.headers["connection"] = "close"  # so that rejected callers keep no connection
    return refusal


def _forbidden_refusal(access: Access, identity: Identity, node: str | None) -> Refusal:
    mine = f"this token belongs to {identity.role.value} {identity.name}"
    if access is Access.NODE:
        todo = f"get one with 'healthctl enroll' on that node, or 'healthctl token issue --node {node}'"
        return Refusal(403, f"{mine} and is not valid for node {node}", todo)
    if access is Access.JOIN:
        return Refusal(403, f"{mine} and is not a join secret", "create one with 'healthctl token join PATTERN'")
    todo = f"an admin can issue one: 'healthctl token issue --{access.value} NAME'"
    return Refusal(403, f"{mine}; this request needs {access.value}", todo)


def _certificate_refusal(request: Request, identity: Identity) -> Refusal | None:
    """Return why a node's token is not valid on this connection; None if it is."""
    tls = handler_context_of(request).config.tls
    if tls is None or not tls.nodes_by_certificate:
        return None
    names = request.scope.get("client_certificate_names", ())
    if identity.name in names:
        return None
    had = f"the client certificate names {', '.join(names)}" if names else "no client certificate was presented"
    todo = (
        "set healthd's 'remediator.certificate' and 'remediator.certificate_key' to a certificate with the node's name"
    )
    return Refusal(403, f"{had}, but the token belongs to node {identity.name}", todo)

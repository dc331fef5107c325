"""One request to a page: the means to query the API, to act, and to render the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route

from remediator.api.access_control import Access, client_address, is_access_allowed, require_access
from remediator.api.endpoint import Endpoint
from remediator.api.handler_context import HandlerContext, Refusal, handler_context_of, read_request_body
from remediator.api.route_table import ENDPOINTS
from remediator.model.credentials import Identity, Role
from remediator.model.views import StatusView
from remediator.web import csrf_protection, static_files, template_rendering
from remediator.web.automation_blockers import list_automation_blockers
from remediator.web.form_fields import parse_form_fields
from remediator.web.page_authentication import PageUser
from remediator.web.response_cache import FRESH_S
from vocabulary.health import Health

T = TypeVar("T")

FORM_BYTES_MAX = 16 << 10
QUERY_CHARS_MAX = 200
THEMES = ("light", "dark")


class NavigationLink(msgspec.Struct, frozen=True):
    """One entry of the navigation; `key` is its shortcut after `g`."""

    path: str
    text: str
    key: str = ""


class PageRequest:
    """The argument of a page's function. `form` is empty for GET; for POST its origin is already checked."""

    def __init__(
        self, request: Request, who: PageUser, links: Iterable[NavigationLink], form: Mapping[str, str]
    ) -> None:
        self.request = request
        self.person = who
        self.form = form
        self.now = self.service.clock.wall()
        self._links = tuple(links)

    @property
    def service(self) -> HandlerContext:
        """The controller's parts, for values that no API view has."""
        return handler_context_of(self.request)

    @property
    def identity(self) -> Identity:
        """The user's identity."""
        return self.person.identity

    @property
    def may_operate(self) -> bool:
        """Whether the user has operator rights."""
        return is_access_allowed(Access.OPERATOR, self.identity, None)

    @property
    def node(self) -> str:
        """The node in the path."""
        return str(self.request.path_params["node"])

    def health(self, node: str) -> str:
        """A node's self-reported health; unknown while it is silent."""
        entry = self.service.report_registry.get(node)
        return str.__str__(entry.health_at(self.now) if entry else Health.UNKNOWN)  # as `Seen.of`: `.value` is slow

    def query(self, name: str, default: str = "") -> str:
        """A query parameter, cut to `QUERY_CHARS_MAX`."""
        return self.request.query_params.get(name, default)[:QUERY_CHARS_MAX]

    def knows(self, method: str, path: str) -> bool:
        """Whether the API has such a route."""
        return find_api_route(method, path) is not None

    async def ask(self, path: str, kind: type[T], /, **query: str | float) -> T:
        """The API's answer to GET as this user, decoded.

        Raises:
            Refusal: the API refused.
        """
        return msgspec.json.decode((await self.answer(path, **query)).body, type=kind)

    async def answer(self, path: str, /, **query: str | float) -> Response:
        """The API's answer to GET as this user, undecoded.

        Raises:
            Refusal: the API refused.
        """
        return await call_api(self.request, self.identity, "GET", path, query)

    async def status(self) -> StatusView:
        """The cluster's status, cached for `FRESH_S` or until the next decision."""
        state, snapshot, now = self.request.app.state, self.service.engine.snapshot, self.service.clock.monotonic()
        kept: tuple[object, float, StatusView] | None = getattr(state, "status_seen", None)
        if kept is not None and kept[0] is snapshot and now - kept[1] < FRESH_S:
            return kept[2]
        seen = await self.ask("/v1/status", StatusView)
        state.status_seen = (snapshot, now, seen)
        return seen

    async def submit(self, path: str, body: msgspec.Struct | None = None, /, **headers: str) -> Response:
        """POST to the API as this user; durable on return. In header names, ``_`` stands for ``-``.

        Raises:
            Refusal: the API refused.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await call_api(self.request, self.identity, "POST", path, body=body, headers=named)

    async def page(self, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
        """Render a page, with the frame that all pages share."""
        now = self.service.clock.wall()
        around = await self._around(title, now)
        text = await asyncio.to_thread(template_rendering.render_page, template, {**around, **values})
        return Response(text, status, template_rendering.HEADERS, media_type="text/html")

    def go(self, path: str, done: str = "") -> Response:
        """Redirect to a page after an action; `done` is a key of `template_rendering.DONE`."""
        target = quote(path, safe="/:@") + (f"?{urlencode({'done': done})}" if done else "")
        return RedirectResponse(target, 303, template_rendering.HEADERS)

    async def _around(self, title: str, now: float) -> dict[str, Any]:
        status = await self.status()
        engine = self.service.engine
        return {
            **bare_page_values(self.request, title, now),
            "status": status,
            "cluster": status.cluster,
            "blockers": list_automation_blockers(status, engine.trouble, leads=engine.may_act()),
            "identity": self.identity,
            "may_operate": self.may_operate,
            "may_admin": self.identity.role is Role.ADMIN,
            "by_proxy": not self.person.session,
            "links": self._links,
            "csrf": partial(_csrf_field, self.person.secret),
            "knows": self.knows,
            "done": template_rendering.DONE.get(self.query("done"), ""),
        }


def bare_page_values(request: Request, title: str, now: float) -> dict[str, Any]:
    """The values of a page that needs no login."""
    theme = request.cookies.get("theme", "")
    return {
        "title": title,
        "made_at": now,
        "when": partial(template_rendering.format_age, now=now),
        "theme": theme if theme in THEMES else "",
        "asset": static_files.static_path,
        "cluster": "",
        "identity": None,
        "status": None,
        "blockers": (),
        "links": (),
        "here": request.url.path,
        "done": "",
    }


async def read_own_form(request: Request, secret: str) -> dict[str, str]:
    """The fields of a form, after the check of its CSRF token.

    Raises:
        Refusal: 400, the body is not a form; 403, the CSRF token is not this login's.
    """
    fields = parse_form_fields(await read_request_body(request, FORM_BYTES_MAX))
    if not csrf_protection.is_csrf_token_valid(fields.pop("csrf", ""), secret):
        raise Refusal(403, "the form belongs to another login", "reload the page and submit it again")
    return fields


def _csrf_field(secret: str) -> Markup:
    return Markup('<input type="hidden" name="csrf" value="{}">').format(csrf_protection.csrf_token(secret))


@cache
def _endpoint_routes() -> tuple[tuple[Endpoint, Route], ...]:
    return tuple((endpoint, endpoint.route()) for endpoint in ENDPOINTS)


def find_api_route(method: str, path: str) -> tuple[Endpoint, dict[str, Any]] | None:
    """The API's route for an unquoted path, and its path parameters; None if there is none."""
    scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    for endpoint, route in _endpoint_routes():
        match, more = route.matches(scope)
        if match is Match.FULL:
            return endpoint, more["path_params"]
    return None


async def call_api(
    request: Request,
    identity: Identity,
    method: str,
    path: str,
    query: Mapping[str, str | int | float] | None = None,
    body: msgspec.Struct | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Call a route within the process as `identity`, with the same access checks and answers as over HTTP.

    `request` is the request on whose behalf the page calls.

    Raises:
        Refusal: the route refused, or 403.
        HTTPException: 404, there is no such route.
    """
    found = find_api_route(method, path)
    if found is None:
        raise HTTPException(404, f"{path} does not exist")
    endpoint, params = found
    require_access(endpoint.access, identity)
    content = b"" if body is None else msgspec.json.encode(body)
    scope = {
        **request.scope,
        "method": method,
        "path": path,
        "query_string": urlencode(query or {}).encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
        "path_params": params,
        "state": {
            **request.scope.get("state", {}),
            "identity": identity,
            "secret": "",
            "address": client_address(request),
        },
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    return await endpoint.handler(Request(scope, receive))

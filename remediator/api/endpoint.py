"""One route: path, access, input and output. Router, access rules and OpenAPI document are built from these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from remediator.api.access_control import Access, authorize_request
from remediator.api.handler_context import refuse_nul_characters

Handler = Callable[[Request], Awaitable[Response]]


class Query(NamedTuple):
    """A query parameter. `kind` is number, integer or string; a list may be given several times."""

    name: str
    kind: str
    about: str
    many: bool = False


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """`answer` is the type of a 200's body or its media type; None: 204 without a body."""

    method: str
    path: str
    access: Access
    handler: Handler
    about: str
    body: Any = None
    answer: Any = None
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()

    def route(self) -> Route:
        """Return the router's entry: the handler behind its rule."""
        return Route(self.path, self.answered, methods=[self.method])

    async def answered(self, request: Request) -> Response:
        """Check a request against the rule, and call the handler."""
        await authorize_request(request, self.access)
        if self.access is not Access.ANYONE:  # these use no database
            refuse_nul_characters(request)
        return await self.handler(request)


def make_get_endpoint(
    path: str, access: Access, handler: Handler, answer: Any, about: str, query: tuple[Query, ...] = (), **more: Any
) -> Endpoint:
    """A route that reads."""
    return Endpoint(
        method="GET", path=path, access=access, handler=handler, answer=answer, about=about, query=query, **more
    )


def make_post_endpoint(
    path: str, access: Access, handler: Handler, body: Any, answer: Any, about: str, headers: tuple[Query, ...] = ()
) -> Endpoint:
    """A route that changes something."""
    return Endpoint(
        method="POST", path=path, access=access, handler=handler, body=body, answer=answer, about=about, headers=headers
    )

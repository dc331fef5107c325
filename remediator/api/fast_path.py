"""Routes the three most frequent calls straight to their handlers: nearly all requests of a fleet.

Starlette's own layers cost a fifth of a report (bench/results/2026-11-remediator.md). For these paths this is
equivalent: the route's rule, its handler, and the same error responses. All other requests go through Starlette.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remediator.api.endpoint import Endpoint

Handlers = Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]

PREFIX = "/v1/nodes/"
DIRECT = (("POST", "report"), ("POST", "heartbeat"), ("GET", "orders"))  # method, and what follows the node's name


class FastPathApplication:
    """An ASGI application in front of another."""

    def __init__(self, app: Starlette, endpoints: Sequence[Endpoint], handlers: Handlers) -> None:
        """Args: `handlers`: the error handlers by class, one for `Exception` among them."""
        self._app = app
        self._handlers = handlers
        self._endpoints = {(e.method, e.path.rpartition("/")[2]): e for e in endpoints if _is_fast_path(e)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path: str = scope.get("path", "")
        if not path.startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        node, _, last = path[len(PREFIX) :].partition("/")
        endpoint = self._endpoints.get((scope.get("method", ""), last))
        if endpoint is None or not node:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        scope["path_params"] = {"node": node}
        request = Request(scope, receive, send)
        try:
            response = await endpoint.answered(request)
        except Exception as error:
            kind = next(kind for kind in type(error).__mro__ if kind in self._handlers)
            response = await self._handlers[kind](request, error)
            await response(scope, receive, send)
            if kind is Exception:
                raise  # as Starlette does: the server logs it
        else:
            await response(scope, receive, send)


def _is_fast_path(endpoint: Endpoint) -> bool:
    return any(endpoint.method == method and endpoint.path == f"{PREFIX}{{node}}/{last}" for method, last in DIRECT)

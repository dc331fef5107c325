"""The two calls that every node makes all the time, straight to their handlers: a fleet makes little else.

What Starlette does around a handler costs a fifth of a report (bench/results/2026-11-remediator.md). Here is the same for two paths: the
route's rule, its handler, and the same answers to errors. Everything else goes the usual way.
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
DIRECT = (("POST", "report"), ("GET", "orders"))  # method, and what follows the node's name


class FastPathApplication:
    """An ASGI application in front of another."""

    def __init__(self, app: Starlette, endpoints: Sequence[Endpoint], handlers: Handlers) -> None:
        """Args: `handlers`: what answers an error, by its class; one for `Exception` is among them."""
        self._app = app
        self._handlers = handlers
        self._endpoints = {(e.method, e.path.rpartition("/")[2]): e for e in endpoints if _is_fast_path(e)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
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

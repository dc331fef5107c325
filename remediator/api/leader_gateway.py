"""The ASGI entry point of one replica. The leader serves all requests; a standby reports its state and accepts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from remediator.api.api_application import HANDLERS, build_app
from remediator.api.controller_metrics import render_standby_metrics
from remediator.api.fast_path import FastPathApplication
from remediator.api.handler_context import HandlerContext, LongPollWakeups, json_response
from remediator.api.health_handlers import Readiness
from remediator.api.route_table import ENDPOINTS
from vocabulary.messages.wire import Problem

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class BrowserPages(Protocol):
    """The browser pages of a replica."""

    always: Sequence[BaseRoute]  # also on a standby
    leading: Sequence[BaseRoute]

    async def show_standby(self, request: Request, word: str) -> Response:
        """Return the page of a standby, with what it waits for."""


class LeaderGateway:
    """An ASGI application that becomes the leader's. Until then `word` says what this replica waits for."""

    def __init__(self, wakeups: LongPollWakeups, pages: BrowserPages | None = None) -> None:
        self.word = "starting"
        self._pages = pages
        self._wakeups = wakeups
        self._leading: FastPathApplication | None = None
        routes = [
            Route("/healthz", self._not_ready, methods=["GET"]),
            Route("/livez", self._alive, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            *(pages.always if pages else ()),
            Route("/{path:path}", self._refused, methods=METHODS),
        ]
        self._standby_app = Starlette(routes=routes, lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the server's lifespan."""
        app = self._standby_app if self._leading is None or scope["type"] == "lifespan" else self._leading
        await app(scope, receive, send)

    def lead(self, service: HandlerContext) -> None:
        """Serve as leader from the next request on. Safe to call from any thread."""
        app = build_app(service, self._pages.leading if self._pages else ())
        self._leading = FastPathApplication(app, ENDPOINTS, HANDLERS)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._wakeups.bind(asyncio.get_running_loop())
        yield

    async def _not_ready(self, _request: Request) -> Response:
        return json_response(Readiness(ready=False, role="standby", error=self.word), 503)

    async def _alive(self, _request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _metrics(self, _request: Request) -> Response:
        return Response(render_standby_metrics(), media_type=CONTENT_TYPE_LATEST)

    async def _refused(self, request: Request) -> Response:
        if self._pages is not None and request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return await self._pages.show_standby(request, self.word)
        todo = "use the replica whose /healthz answers 200"
        return json_response(
            Problem(error=f"this replica is a standby: {self.word}", todo=todo), 503, {"retry-after": "1"}
        )

"""Handlers without authentication: readiness, liveness, metrics and the OpenAPI document."""

from __future__ import annotations

import asyncio

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.controller_metrics import render_metrics
from remediator.api.handler_context import handler_context_of, json_response


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether this replica should receive requests, and if not, why."""

    ready: bool
    role: str  # leader or standby
    epoch: int = 0
    error: str = ""


async def handle_healthz(request: Request) -> Response:
    """Ready when decisions are made, the database is writable and no other replica leads; otherwise says what is wrong."""
    engine = handler_context_of(request).engine
    trouble = engine.trouble or ("" if engine.alive else "the engine has stopped; see the log")
    word = Readiness(ready=not trouble, role="leader", epoch=engine.epoch, error=trouble)
    return json_response(word, 503 if trouble else 200)


async def handle_livez(request: Request) -> Response:
    """Alive as long as decisions could be made; a database outage is no reason for a restart."""
    alive = handler_context_of(request).engine.alive
    return Response("ok\n" if alive else "the engine has stopped\n", 200 if alive else 503, media_type="text/plain")


async def handle_metrics(request: Request) -> Response:
    """Prometheus text."""
    page = await asyncio.to_thread(render_metrics, handler_context_of(request))
    return Response(page, media_type=CONTENT_TYPE_LATEST)


async def handle_openapi(request: Request) -> Response:
    """The OpenAPI document, which the application builds once."""
    return Response(request.app.state.openapi_document(), media_type="application/json")

"""What anybody may ask: is this the one to ask, does it live, its metrics, what else there is to call."""

from __future__ import annotations

import asyncio

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.metrics import render_metrics
from remediator.api.service import reply, service_of


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether requests should be sent here, and if not, why."""

    ready: bool
    role: str  # leader or standby
    epoch: int = 0
    error: str = ""


async def healthz(request: Request) -> Response:
    """Ready when decisions are being made, the database can be written and nobody else leads; else says what is wrong."""
    engine = service_of(request).engine
    trouble = engine.trouble or ("" if engine.alive else "the engine has stopped; see the log")
    word = Readiness(ready=not trouble, role="leader", epoch=engine.epoch, error=trouble)
    return reply(word, 503 if trouble else 200)


async def livez(request: Request) -> Response:
    """Alive as long as decisions could be made; a database that is away for a while is no reason to be restarted."""
    alive = service_of(request).engine.alive
    return Response("ok\n" if alive else "the engine has stopped\n", 200 if alive else 503, media_type="text/plain")


async def metrics(request: Request) -> Response:
    """Prometheus text."""
    page = await asyncio.to_thread(render_metrics, service_of(request))
    return Response(page, media_type=CONTENT_TYPE_LATEST)


async def openapi(request: Request) -> Response:
    """The OpenAPI document, made once by the application."""
    return Response(request.app.state.openapi_document(), media_type="application/json")

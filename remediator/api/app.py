"""The routes, and how every error is answered."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from remediator.api import evidence, jobs, nodes, operators, postmortems
from remediator.api.metrics import render_metrics
from remediator.api.service import Refusal, Service, reply, service_of
from vocabulary.wire import Problem

log = logging.getLogger(__name__)


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
    return Response(render_metrics(service_of(request)), media_type=CONTENT_TYPE_LATEST)


async def refused(_request: Request, error: Exception) -> Response:
    """A `Refusal` raised by a handler."""
    assert isinstance(error, Refusal)  # noqa: S101 - registered for that class
    return reply(error.problem, error.status, error.headers)


async def unroutable(request: Request, error: Exception) -> Response:
    """No such path, or not this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return reply(Problem(error=f"{request.method} {request.url.path}: {getattr(error, 'detail', error)}"), status)


async def broken(request: Request, error: Exception) -> Response:
    """A bug of ours; the details go to the log, not to the caller."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return reply(Problem(error="the remediator failed on this request; its log says why"), 500)


ROUTES = [
    Route("/v1/nodes/{node}/report", nodes.report, methods=["POST"]),
    Route("/v1/nodes/{node}/orders", nodes.orders, methods=["GET"]),
    Route("/v1/nodes/{node}/orders/{order:path}", nodes.answer, methods=["POST"]),
    Route("/v1/nodes/{node}/evidence/{order:path}", evidence.take, methods=["POST"]),
    Route("/v1/jobs/{job:path}/hazard", jobs.hazard, methods=["GET"]),
    Route("/v1/status", operators.status, methods=["GET"]),
    Route("/v1/nodes", operators.nodes, methods=["GET"]),
    Route("/v1/nodes/{node}", operators.node, methods=["GET"]),
    Route("/v1/incidents", operators.incidents, methods=["GET"]),
    Route("/v1/incidents/{incident}", operators.incident, methods=["GET"]),
    Route("/v1/incidents/{incident}/evidence", evidence.show, methods=["GET"]),
    Route("/v1/incidents/{incident}/postmortem", postmortems.show, methods=["GET"]),
    Route("/v1/incidents/{incident}/approve", operators.approve, methods=["POST"]),
    Route("/v1/events", operators.events, methods=["GET"]),
    Route("/healthz", healthz, methods=["GET"]),
    Route("/livez", livez, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]


def build_app(service: Service) -> Starlette:
    """The leader's application. The loop it runs on must be known to the wake-ups."""
    handlers = {Refusal: refused, HTTPException: unroutable, Exception: broken}
    app = Starlette(routes=ROUTES, exception_handlers=handlers)
    app.state.service = service
    app.state.evidence_turns = asyncio.Semaphore(evidence.AT_ONCE)
    return app

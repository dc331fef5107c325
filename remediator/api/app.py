"""The leader's application: the routes behind their rules, and how every error is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from remediator.api import evidence
from remediator.api.direct import Handlers
from remediator.api.jobs import Board
from remediator.api.lists import Shared, listed_jobs
from remediator.api.openapi import openapi_document
from remediator.api.routes import ENDPOINTS
from remediator.api.service import RETRY_AFTER_S, Refusal, Service, reply
from remediator.store.database import refuses, words_of
from vocabulary.wire import Problem

log = logging.getLogger(__name__)


async def refused(_request: Request, error: Exception) -> Response:
    """A `Refusal` raised by a handler."""
    assert isinstance(error, Refusal)  # noqa: S101 - registered for that class
    return reply(error.problem, error.status, error.headers)


async def unroutable(request: Request, error: Exception) -> Response:
    """No such path, or not this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    problem = Problem(error=f"{request.method} {request.url.path}: {getattr(error, 'detail', error)}")
    return reply(problem, status, headers)


async def broken(request: Request, error: Exception) -> Response:
    """A bug of ours; the details go to the log, not to the caller."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return reply(Problem(error="the remediator failed on this request; its log says why"), 500)


async def away(request: Request, error: Exception) -> Response:
    """The database cannot be asked: no bug, and nothing that another attempt could not mend."""
    if refuses(error):
        return await broken(request, error)
    log.warning("%s %s: the database cannot be asked: %s", request.method, request.url.path, words_of(error))
    problem = Problem(error="the database cannot be asked now", todo="send it again later; a repetition does no harm")
    return reply(problem, 503, {"retry-after": str(RETRY_AFTER_S)})


HANDLERS: Handlers = {Refusal: refused, HTTPException: unroutable, SQLAlchemyError: away, Exception: broken}


def build_app(service: Service, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The leader's application. The loop it runs on must be known to the wake-ups. `pages` come after the API's routes."""
    routes = [*(endpoint.route() for endpoint in ENDPOINTS), *pages]
    app = Starlette(routes=routes, exception_handlers=dict(HANDLERS))
    app.state.service = service
    app.state.openapi_document = openapi_document
    app.state.board = Board(service)
    app.state.jobs_listed = Shared(listed_jobs)
    app.state.evidence_turns = asyncio.Semaphore(evidence.AT_ONCE)
    return app

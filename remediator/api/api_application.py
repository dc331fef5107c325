"""The leader's application: the routes with their rules, and the error responses."""

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

from remediator.api import evidence_handlers
from remediator.api.fast_path import Handlers
from remediator.api.handler_context import RETRY_AFTER_S, HandlerContext, Refusal, json_response
from remediator.api.hazard_handlers import HazardCache
from remediator.api.list_handlers import SharedResult, encoded_job_list
from remediator.api.openapi_document import openapi_document
from remediator.api.route_table import ENDPOINTS
from remediator.store.database import driver_message, is_permanent_refusal
from vocabulary.messages.wire import Problem

log = logging.getLogger(__name__)


async def respond_to_refusal(_request: Request, error: Exception) -> Response:
    """A `Refusal` raised by a handler."""
    assert isinstance(error, Refusal)  # noqa: S101 - registered for that class
    return json_response(error.problem, error.status, error.headers)


async def respond_to_unknown_route(request: Request, error: Exception) -> Response:
    """No such path, or not this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    problem = Problem(error=f"{request.method} {request.url.path}: {getattr(error, 'detail', error)}")
    return json_response(problem, status, headers)


async def respond_to_internal_error(request: Request, error: Exception) -> Response:
    """An internal error; the details go to the log, not to the caller."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return json_response(Problem(error="internal error; see the controller's log"), 500)


async def respond_to_database_outage(request: Request, error: Exception) -> Response:
    """The database is unavailable: no bug, and a retry may succeed."""
    if is_permanent_refusal(error):
        return await respond_to_internal_error(request, error)
    log.warning("%s %s: the database is unavailable: %s", request.method, request.url.path, driver_message(error))
    problem = Problem(error="the database is unavailable now", todo="retry later; retries are safe")
    return json_response(problem, 503, {"retry-after": str(RETRY_AFTER_S)})


HANDLERS: Handlers = {
    Refusal: respond_to_refusal,
    HTTPException: respond_to_unknown_route,
    SQLAlchemyError: respond_to_database_outage,
    Exception: respond_to_internal_error,
}


def build_app(service: HandlerContext, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Build the leader's application. The wake-ups must know its loop. `pages` come after the API's routes."""
    routes = [*(endpoint.route() for endpoint in ENDPOINTS), *pages]
    app = Starlette(routes=routes, exception_handlers=dict(HANDLERS))
    app.state.service = service
    app.state.openapi_document = openapi_document
    app.state.board = HazardCache(service)
    app.state.jobs_listed = SharedResult(encoded_job_list)
    app.state.evidence_turns = asyncio.Semaphore(evidence_handlers.AT_ONCE)
    app.state.stack_trees = {}
    return app

"""Calls the API within the process for a logged-in person, with the same access checks and answers as over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from remediator.api.access_control import client_address, require_access
from remediator.api.endpoint import Endpoint
from remediator.api.route_table import ENDPOINTS
from remediator.model.credentials import Identity


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
    """Call a route as `identity`, on behalf of `request`.

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

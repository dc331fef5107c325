"""The OpenAPI 3.1 document, built from the route table and the message types that requests are validated with."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from remediator.api.access_control import Access
from remediator.api.endpoint import Endpoint, Query
from remediator.api.route_table import ENDPOINTS
from vocabulary.messages.wire import Problem

_ERRORS = {
    "400": "The request is invalid.",
    "401": "The token is missing or invalid.",
    "403": "The token does not allow this.",
    "404": "Not found.",
    "408": "The body did not arrive in time.",
    "409": "The current state does not allow this.",
    "412": "The object has changed since it was read.",
    "413": "Too long.",
    "429": "Too many requests; see Retry-After.",
    "503": "Unavailable; retry, or use the leader.",
}
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


def build_openapi_document() -> dict[str, Any]:
    """Return the whole document, as JSON values."""
    kinds = {kind for e in ENDPOINTS for kind in (e.body, e.answer) if isinstance(kind, type)} | {Problem}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _build_operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpu-healthd remediator",
            "version": "1",
            "description": "The gpu-healthd controller. A standby answers 503 to all but /healthz, /livez and /metrics.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def openapi_document() -> bytes:
    """Return the document as JSON text, built at the first call."""
    return msgspec.json.encode(build_openapi_document())


def _build_operation(endpoint: Endpoint) -> dict[str, Any]:
    names = _PARAMETER.findall(endpoint.path)
    parameters = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]
    parameters += [_build_parameter(query, "query") for query in endpoint.query]
    parameters += [_build_parameter(header, "header") for header in endpoint.headers]
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}{_operation_title(endpoint.path)}",
        "summary": endpoint.about,
        "description": f"For: {endpoint.access.value}.",
        "responses": _build_responses(endpoint),
    }
    if endpoint.access is not Access.ANYONE:
        operation["security"] = [{"token": []}]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _build_content(endpoint.body)}
    return operation


def _operation_title(path: str) -> str:
    return "".join(word.capitalize() for word in re.findall(r"[a-z0-9]+", path.replace(":path", "")) if word != "v1")


def _build_parameter(query: Query, place: str) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": query.kind}
    schema = {"type": "array", "items": kind} if query.many else kind
    return {"name": query.name, "in": place, "description": query.about, "schema": schema}


def _build_responses(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        responses: dict[str, Any] = {"204": {"description": "Done and durable."}}
    else:
        responses = {"200": {"description": endpoint.about, "content": _build_content(endpoint.answer)}}
    for status, words in _ERRORS.items():
        if endpoint.access is Access.ANYONE and status != "503":
            continue
        responses[status] = {"description": words, "content": _build_content(Problem)}
    return responses


def _build_content(kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}

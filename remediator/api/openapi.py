"""The OpenAPI 3.1 document, made of the table of routes and the types of the messages: what is published is what is checked."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from remediator.api.access import Access
from remediator.api.endpoint import Endpoint, Query
from remediator.api.routes import ENDPOINTS
from vocabulary.wire import Problem

_ERRORS = {
    "400": "The request is wrong.",
    "401": "No good token.",
    "403": "Not with this token.",
    "404": "There is no such thing.",
    "408": "The body did not arrive in time.",
    "409": "Not as things are.",
    "412": "Not as you saw it.",
    "413": "Too long.",
    "429": "Too often; Retry-After says when.",
    "503": "Not now; ask again, or ask the one that leads.",
}
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


def document() -> dict[str, Any]:
    """The whole document, as JSON values."""
    kinds = {kind for e in ENDPOINTS for kind in (e.body, e.answer) if isinstance(kind, type)} | {Problem}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpu-healthd remediator",
            "version": "1",
            "description": "The centre of gpu-healthd. A standby answers 503 to all but /healthz, /livez and /metrics.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def openapi_document() -> bytes:
    """The document as JSON text, made at the first call."""
    return msgspec.json.encode(document())


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    names = _PARAMETER.findall(endpoint.path)
    parameters = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]
    parameters += [_parameter(query, "query") for query in endpoint.query]
    parameters += [_parameter(header, "header") for header in endpoint.headers]
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}{_title(endpoint.path)}",
        "summary": endpoint.about,
        "description": f"For: {endpoint.access.value}.",
        "responses": _responses(endpoint),
    }
    if endpoint.access is not Access.ANYONE:
        operation["security"] = [{"token": []}]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(endpoint.body)}
    return operation


def _title(path: str) -> str:
    return "".join(word.capitalize() for word in re.findall(r"[a-z0-9]+", path.replace(":path", "")) if word != "v1")


def _parameter(query: Query, place: str) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": query.kind}
    schema = {"type": "array", "items": kind} if query.many else kind
    return {"name": query.name, "in": place, "description": query.about, "schema": schema}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        responses: dict[str, Any] = {"204": {"description": "Done, and durable."}}
    else:
        responses = {"200": {"description": endpoint.about, "content": _content(endpoint.answer)}}
    for status, words in _ERRORS.items():
        if endpoint.access is Access.ANYONE and status != "503":
            continue
        responses[status] = {"description": words, "content": _content(Problem)}
    return responses


def _content(kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}

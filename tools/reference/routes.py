"""The routes of the controller's API, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remediator.api.openapi import document
from tools.reference.markdown import code, head, joined, prose, table

ABOUT = (
    "Generated from `GET /v1/openapi.json`. Tokens, roles, limits and concepts: [API](api.md).",
    "Every error is a `Problem`: 401 no valid token, 403 not allowed with this token, 429 rate limit, 503 unavailable or standby.",
)
_REFERENCE = "#/components/schemas/"


def page() -> str:
    """docs/reference/routes.md."""
    whole = document()
    operations = list(_operations(whole["paths"]))
    lines = head("Routes of the API", *ABOUT)
    lines += ["## Routes", ""]
    rows = [
        [
            code(f"{method} {path}"),
            op["description"].removeprefix("For: ").rstrip("."),
            prose(op["summary"]),
            *_inout(op),
        ]
        for method, path, op in operations
    ]
    lines += table(["route", "role", "purpose", "request", "response"], rows)
    lines += ["## Parameters", "", "Path parameters name the object.", ""]
    rows = [
        [code(f"{method} {path}"), code(one["name"]), one["in"], _kind(one["schema"]), prose(one["description"])]
        for method, path, op in operations
        for one in op.get("parameters", ())
        if one["in"] != "path"
    ]
    lines += table(["route", "parameter", "in", "type", "meaning"], rows)
    lines += ["## Messages", ""]
    for name, schema in whole["components"]["schemas"].items():
        lines += _message(name, schema)
    return joined(lines)


def _operations(paths: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _inout(operation: Mapping[str, Any]) -> tuple[str, str]:
    answer = operation["responses"].get("200", {}).get("content", {})
    return _content(operation.get("requestBody", {}).get("content", {})), _content(answer) or "204"


def _content(content: Mapping[str, Any]) -> str:
    return ", ".join(_kind(body["schema"]) if body else code(media) for media, body in content.items())


def _kind(schema: Mapping[str, Any]) -> str:
    """The name of a type, with a link if it is a message of its own."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(code(str(one)) for one in schema["enum"])
    if schema.get("type") == "array":
        inner = [_kind(one) for one in schema.get("prefixItems", ())]
        items = schema.get("items")
        return f"list of {', '.join(inner) or (_kind(items) if items else 'anything')}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"mapping to {_kind(values)}" if isinstance(values, Mapping) and values else "mapping"
    return str(schema.get("type", "anything"))


def _message(name: str, schema: Mapping[str, Any]) -> list[str]:
    lines = [f"### {name}", ""]
    if schema.get("description"):
        lines += [prose(schema["description"].split("\n\n")[0]), ""]
    if "enum" in schema:
        return [*lines, "One of " + _kind(schema) + ".", ""]
    needed = set(schema.get("required", ()))
    rows = [[code(key), _kind(one), "yes" if key in needed else "", _limits(one)] for key, one in _fields(schema)]
    return [*lines, *(table(["field", "type", "required", "limits"], rows) if rows else [])]


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from schema.get("properties", {}).items()


def _limits(schema: Mapping[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "maxLength": "length ≤"}
    return ", ".join(f"{word} {schema[key]:g}" for key, word in words.items() if key in schema)

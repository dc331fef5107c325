"""The published document: as it was, well-formed, and whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator

from remediator.api.openapi_document import build_openapi_document
from remediator.api.route_table import ENDPOINTS
from tests.unit.remediator.api.in_process_controller import Inside

# What OpenAPI 3.1 asks of a document's frame, written from the specification's tables of fixed fields; what stands under
# `schema` is plain JSON Schema 2020-12 there, and is held against that one's own meta-schema.
_PARAMETER = {
    "type": "object",
    "required": ["name", "in", "schema"],
    "properties": {
        "name": {"type": "string"},
        "in": {"enum": ["query", "header", "path", "cookie"]},
        "required": {"type": "boolean"},
        "description": {"type": "string"},
        "schema": {"$dynamicRef": "#meta"},
    },
    "if": {"properties": {"in": {"const": "path"}}},
    "then": {"required": ["required"], "properties": {"required": {"const": True}}},
    "additionalProperties": False,
}
_CONTENT = {
    "type": "object",
    "propertyNames": {"pattern": "^[a-z]+/[a-z.+-]+$"},
    "additionalProperties": {"type": "object", "properties": {"schema": {}}, "additionalProperties": False},
}
_OPERATION = {
    "type": "object",
    "required": ["responses", "operationId"],
    "properties": {
        "operationId": {"type": "string", "pattern": "^[A-Za-z0-9]+$"},
        "summary": {"type": "string"},
        "description": {"type": "string"},
        "parameters": {"type": "array", "items": _PARAMETER},
        "requestBody": {
            "type": "object",
            "required": ["content"],
            "properties": {"required": {"type": "boolean"}, "content": _CONTENT},
            "additionalProperties": False,
        },
        "responses": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[1-5][0-9]{2}$"},
            "additionalProperties": {
                "type": "object",
                "required": ["description"],
                "properties": {"description": {"type": "string"}, "content": _CONTENT},
                "additionalProperties": False,
            },
        },
        "security": {"type": "array", "items": {"type": "object", "propertyNames": {"const": "token"}}},
    },
    "additionalProperties": False,
}
FRAME = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["openapi", "info", "paths"],
    "properties": {
        "openapi": {"pattern": r"^3\.1\.\d+$"},
        "info": {"type": "object", "required": ["title", "version"]},
        "paths": {
            "type": "object",
            "propertyNames": {"pattern": "^/"},
            "additionalProperties": {
                "type": "object",
                "propertyNames": {"enum": ["get", "post"]},
                "additionalProperties": _OPERATION,
            },
        },
        "components": {
            "type": "object",
            "properties": {"schemas": {"type": "object"}, "securitySchemes": {"type": "object"}},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}


def _everywhere(value: Any, key: str) -> list[Any]:
    if isinstance(value, list):
        return [found for each in value for found in _everywhere(each, key)]
    if not isinstance(value, dict):
        return []
    return ([value[key]] if key in value else []) + [f for each in value.values() for f in _everywhere(each, key)]


def test_it_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    golden("remediator/openapi.json", json.dumps(build_openapi_document(), indent=1, sort_keys=True) + "\n")


def test_it_is_well_formed() -> None:
    found = build_openapi_document()
    frame = json.loads(json.dumps(FRAME).replace('{"$dynamicRef": "#meta"}', "{}"))
    assert list(Draft202012Validator(frame).iter_errors(found)) == []
    schemas = found["components"]["schemas"]
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        Draft202012Validator.check_schema(schema)
    for schema in _everywhere(found["paths"], "schema"):
        Draft202012Validator.check_schema(schema)
    for reference in _everywhere(found, "$ref"):
        assert reference.removeprefix("#/components/schemas/") in schemas
    operations = [operation for path in found["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) == len(ENDPOINTS)


def test_every_path_names_its_parameters() -> None:
    for path, operations in build_openapi_document()["paths"].items():
        for operation in operations.values():
            named = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            assert re.findall(r"\{(\w+)\}", path) == named


def test_anybody_may_have_it(shared: Inside) -> None:
    assert shared.call("GET", "/v1/openapi.json").json() == json.loads(json.dumps(build_openapi_document()))

"""Whatever is sent to whatever route by whomever: never a 500, every error in one form, and nothing from nobody changes anything."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remediator.api.openapi_document import build_openapi_document
from tests.unit.remediator.api.in_process_controller import Inside
from vocabulary.messages.wire import Problem, decode_message

DOCUMENT: dict[str, Any] = build_openapi_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if path != "/v1/events/stream"  # it has no end
]
WORDS = st.text(max_size=12) | st.sampled_from(["n1", "inc-1", "-1", "nan", "1e999", "\0", "ü", "x" * 300, "😀"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def like(schema: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that a schema describes, and now and then one that it does not."""
    return st.one_of(*[fitting(schema, depth)] * 9, ANYTHING)


def fitting(schema: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return like(SCHEMAS[schema["$ref"].rpartition("/")[2]], depth)
    if "anyOf" in schema:
        return st.one_of(*[like(each, depth) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        wanted = set(schema.get("required", ()))
        if depth > 4:
            return st.just({})
        fields = {name: like(each, depth + 1) for name, each in schema["properties"].items()}
        needed = {name: field for name, field in fields.items() if name in wanted}
        return st.fixed_dictionaries(needed, optional={n: f for n, f in fields.items() if n not in wanted})
    if kind == "object":
        return st.dictionaries(WORDS, like(schema.get("additionalProperties") or {}, depth + 1), max_size=2)
    if kind == "array":
        return st.lists(like(schema.get("items") or {}, depth + 1), max_size=2 if depth < 4 else 0)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        "integer": st.integers(-(2**70), 2**70) | st.integers(0, 9),
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 9),
        "string": WORDS,
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return plain.get(kind, ANYTHING)


@st.composite
def requests(draw: st.DrawFn, path: str, operation: dict[str, Any]) -> tuple[str, bytes, dict[str, str]]:
    """A path with its query, a body, headers."""
    query = []
    headers = {}
    for parameter in operation.get("parameters", []):
        word = draw(WORDS)
        if parameter["in"] == "path":
            path = path.replace(
                "{" + parameter["name"] + "}", quote(draw(st.sampled_from(["n1", "inc-1", word or "x"])), safe="")
            )
        elif parameter["in"] == "query" and parameter["name"] != "wait_s" and draw(st.booleans()):
            query.append(f"{parameter['name']}={quote(word)}")
        elif parameter["in"] == "header" and draw(st.booleans()):
            headers[parameter["name"]] = word.encode("ascii", "replace").decode()
    content = operation.get("requestBody", {}).get("content", {})
    body = b""
    if "application/json" in content:
        body = json.dumps(draw(like(content["application/json"]["schema"]))).encode()
    if draw(st.integers(0, 9)) == 0:
        body = draw(st.binary(max_size=40)) + body[: draw(st.integers(0, 60))]
    return path + ("?" + "&".join(query) if query else ""), body, headers


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_request_breaks_it(
    shared: Inside, method: str, path: str, operation: dict[str, Any], data: st.DataObject
) -> None:
    target, body, headers = data.draw(requests(path, operation))
    who = data.draw(st.sampled_from(["", "nobody's", "n1", "n2", "vic", "ann", "root", "join"]))
    answer = shared.call(method, target, who, body, headers)
    assert answer.status != 500, answer.body
    assert str(answer.status) in {*operation["responses"], "404"} or answer.status == 503
    if answer.status >= 400:
        assert decode_message(answer.body, Problem).error
    if who in {"", "nobody's"} and "security" in operation:
        assert answer.status == 401 or "Not Found" in decode_message(answer.body, Problem).error  # a slash in a name
    assert shared.service.engine.alive
    assert not shared.service.engine.trouble


@given(path=st.text(max_size=30), method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "X"]))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_breaks_it(shared: Inside, path: str, method: str) -> None:
    answer = shared.call(method, "/" + quote(path), "ann")
    to_login = answer.status == 303 and answer.headers["location"].startswith("/login")  # a page asks for a session
    assert to_login or answer.status in {200, 204, 400, 401, 403, 404, 405}

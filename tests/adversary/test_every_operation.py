"""Every operation of the served OpenAPI document, asked by everybody, rightly and wrongly: the answers are those that it promises.

`make fuzz` tries many more cases of each (API_CASES).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from remediator.api.openapi_document import build_openapi_document
from tests.e2e.controller_process import Controller

CASES = int(os.environ.get("API_CASES", "1"))
NO_LIMITS = "limits: {node_per_s: 1000000000.0, node_burst: 1000000000, person_per_s: 1000000000.0, person_burst: 1000000000, unknown_per_s: 1000000000.0, unknown_burst: 1000000000}\n"
PEOPLE = ("nobody", "n1", "vic", "ann", "i1")
LABELS = [
    f"{method.upper()} {path}"
    for path, operations in build_openapi_document()["paths"].items()
    for method in operations
    if path not in ("/v1/events/stream", "/v1/openapi.json")  # has no end; is what is read
]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
]


@schemathesis.serializer("application/gzip")
def _gzipped(_: Any, value: Any) -> bytes:
    return gzip.compress(json.dumps(value, default=str).encode())


@schemathesis.serializer("application/msgpack")
def _packed(_: Any, value: Any) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=str)


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    made = Controller(tmp_path_factory.mktemp("controller"))
    made.config.write_text(made.config.read_text() + NO_LIMITS)
    made.tokens["vic"] = made.issue("--viewer", "vic")
    made.tokens["i1"] = made.issue("--ingest", "i1")
    made.start()
    yield made
    made.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def schema(controller: Controller) -> Any:
    return schemathesis.openapi.from_url(f"{controller.url}/v1/openapi.json", timeout=60)


def test_the_served_document_is_the_one_that_is_tried(controller: Controller) -> None:
    assert requests.get(f"{controller.url}/v1/openapi.json", timeout=60).json() == json.loads(
        json.dumps(build_openapi_document())
    )


@pytest.mark.parametrize("label", LABELS)
def test_no_answer_breaks_its_promise(label: str, controller: Controller, schema: Any) -> None:
    operation = next(found.ok() for found in schema.get_all_operations() if found.ok().label == label)
    shapes = [operation.as_strategy(generation_mode=GenerationMode.POSITIVE)]
    if operation.query or operation.body or operation.path_parameters:
        shapes.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))

    @settings(max_examples=CASES * len(PEOPLE), deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], database=None, derandomize=CASES < 10)  # fmt: skip
    @given(case=st.one_of(shapes), who=st.sampled_from(PEOPLE))
    def ask(case: Any, who: str) -> None:
        case.query = {name: value for name, value in dict(case.query or {}).items() if name != "wait_s"}
        token = {"Authorization": f"Bearer {controller.tokens[who]}"} if who != "nobody" else {}
        case.call_and_validate(headers=token, checks=CHECKS, timeout=60)

    ask()
    assert requests.get(f"{controller.url}/healthz", timeout=60).status_code == 200


@pytest.mark.parametrize("label", LABELS)
def test_a_nul_in_any_parameter_is_the_callers_mistake(label: str, controller: Controller) -> None:
    """PostgreSQL takes it in no text, so what reaches a database would be an error of ours."""
    method, path = label.split(" ")
    operation = build_openapi_document()["paths"][path][method.lower()]
    if "security" not in operation:
        return
    names = [(each["in"], each["name"]) for each in operation.get("parameters", ()) if each["in"] != "header"]
    whole = path.replace("{node}", "n1")
    for place, name in names:
        odd = path.replace(f"{{{name}}}", "a%00b") if place == "path" else f"{whole}?{name}=a%00b"
        for who in ("ann", "n1"):
            answer = controller.call(method, re.sub(r"\{\w+\}", "x", odd), who)
            assert 400 <= answer.status_code < 500, (odd, who, answer.text)

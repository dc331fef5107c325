"""The published schema says what documents are: what our reader takes, the schema takes, and the other way round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import preflight
from preflight.document_schema import FILE_NAME, build_document_schema, schema_text
from preflight.report.document_reader import DocumentError, parse_document
from preflight.results import Document

PUBLISHED = Path(preflight.__file__).parent / "schemas" / FILE_NAME
VALIDATOR = Draft202012Validator(build_document_schema())


def plain(document: Document) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(document))
    return decoded


def test_what_is_published_is_what_the_records_say() -> None:
    assert PUBLISHED.read_text() == schema_text(), "write it anew: python -m preflight schema > the file"


def test_the_schema_is_one_by_its_own_dialect() -> None:
    Draft202012Validator.check_schema(build_document_schema())


@pytest.mark.parametrize("name", ["passing", "failing", "hanging", "huge", "hostile"])
def test_every_kind_of_document_is_valid(name: str, request: pytest.FixtureRequest) -> None:
    VALIDATOR.validate(plain(request.getfixturevalue(name)))


def test_what_a_real_run_prints_is_valid_and_can_be_read() -> None:
    command = [sys.executable, "-m", "preflight", "run", "--only", "gpu_state", "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=100)
    VALIDATOR.validate(json.loads(done.stdout))
    assert parse_document(done.stdout).verdict.exit_code == done.returncode


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(version=1),
        lambda d: d.update(verdict="fine"),
        lambda d: d.pop("reasons"),
        lambda d: d.update(complete="yes"),
        lambda d: d["results"][0].pop("outcome"),
        lambda d: d["results"][0].update(outcome="passed"),
        lambda d: d["results"][-1]["figures"][0].update(value="fast"),
        lambda d: d["results"][-1]["figures"][0].update(value=None),
        lambda d: d["results"][-1]["figures"][0]["expected"][0].update(source="hearsay"),
        lambda d: d["results"][-1]["evidence"].update(nested=[1]),
    ],
)
def test_what_is_no_document_is_not_valid(passing: Document, spoil: Callable[[dict[str, Any]], object]) -> None:
    spoilt = plain(passing)
    spoil(spoilt)
    assert not VALIDATOR.is_valid(spoilt)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.just(0.5), st.text(max_size=3), st.just([]), st.just({})
)


@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_schema_and_reader_agree_on_anything_that_was_changed(failing: Document, data: st.DataObject) -> None:
    changed = plain(failing)
    changed["results"] = changed["results"][-20:]
    where: Any = changed
    while isinstance(where, dict | list) and where:
        key = data.draw(st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where))))
        if not isinstance(where[key], dict | list) or not where[key] or data.draw(st.booleans()):
            if data.draw(st.booleans()):
                where[key] = data.draw(JUNK)
            else:
                del where[key]
            break
        where = where[key]
    if changed.get("version") != 2:
        return  # another version: the reader refuses it as such
    try:
        parse_document(json.dumps(deepcopy(changed)).encode())
        readable = True
    except DocumentError:
        readable = False
    assert VALIDATOR.is_valid(changed) is readable

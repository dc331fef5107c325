from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.report.document_reader import DocumentError, parse_document
from preflight.results import Document


def test_a_document_comes_back_as_it_was(failing: Document) -> None:
    assert parse_document(msgspec.json.encode(failing)) == failing


def test_what_a_later_release_adds_does_not_hinder(passing: Document) -> None:
    said = json.loads(msgspec.json.encode(passing))
    said["colour"] = said["results"][0]["colour"] = "green"
    assert parse_document(json.dumps(said).encode()) == passing


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"preflight: memory_pattern ...", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "it has no version"),
        (b'{"version": "2"}', "it has no version"),
        (b'{"version": 2}', "missing required field"),
        (b'{"version": 2, "results": [3]}', "its version is 2"),
        (b'{"version": 2, "culprits": []}', "of a group"),
        (b'{"version": 1}', "only version 2"),
        (b'{"version": 3}', "only version 2"),
    ],
)
def test_what_is_none_is_refused_in_words(said: bytes, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        parse_document(said)


@given(st.one_of(st.binary(max_size=60), st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["version", "results", "data", "x"]), inner)).map(lambda value: json.dumps(value).encode())))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_nothing_but_a_document_error_comes_of_anything(said: bytes) -> None:
    with pytest.raises(DocumentError):
        parse_document(said)

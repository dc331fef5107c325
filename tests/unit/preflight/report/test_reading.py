from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.report.document_reader import DocumentError, parse_document
from preflight.results import DOCUMENT_VERSION, Document, Outcome, Verdict

VERSION_1 = {
    "version": 1,
    "level": "gate",
    "node": "node1",
    "complete": False,
    "rounds": 1,
    "verdict": "fail",
    "reason": "memory_pattern on cpu: 1 wrong words",
    "reasons": ["memory_pattern on cpu: 1 wrong words"],
    "injected": ["memory_pattern:bit_flip"],
    "started_at": 1_700_000_000.0,
    "seconds": 4.2,
    "results": [
        {"test": "memory_pattern", "outcome": "fail", "device": "cpu", "reason": "1 wrong words", "seconds": 1.5, "data": {"wrong_words": 1}},
        {"test": "gpu_state", "outcome": "not_applicable"},
    ],
}  # fmt: skip


def test_a_document_comes_back_as_it_was(failing: Document) -> None:
    assert parse_document(msgspec.json.encode(failing)) == failing


def test_a_document_of_the_first_version_is_read_as_if_written_today() -> None:
    found = parse_document(json.dumps(VERSION_1).encode())
    assert found.version == DOCUMENT_VERSION
    assert found.verdict is Verdict.FAIL
    assert found.results[0].evidence == {"wrong_words": 1}
    assert found.results[1].outcome is Outcome.NOT_APPLICABLE
    assert found.devices == ()


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
        (b'{"version": 1}', "missing required field"),
        (b'{"version": 1, "results": [3]}', "its version is 1"),
        (b'{"version": 1, "culprits": []}', "of a group"),
        (b'{"version": 0}', "does not exist"),
        (b'{"version": 3}', "newer than this program supports"),
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

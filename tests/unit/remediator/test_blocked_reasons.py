"""What is written of a block is read again as it was meant, and nothing else is taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.decisions.rule_guards import GuardAnswer, is_guard_passed
from remediator.model.blocked_reasons import IncidentBlocker, mode_sentence_prefix, parse_incident_blocker

WORD = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=20)


@given(WORD.map(lambda word: f"inc-{word}"), WORD, st.text(min_size=1))
def test_what_is_written_of_one_incident_is_read_again(incident: str, node: str, what: str) -> None:
    assert parse_incident_blocker(str(IncidentBlocker(incident, node, what))) == (incident, node, what)


@pytest.mark.parametrize(
    "sentence",
    [
        mode_sentence_prefix("observe"),
        "data is stale: 2 of 3 nodes are silent: inc-1 on n1, n2",
        "scheduler: away",
    ],
)
def test_what_is_about_more_is_about_no_single_incident(sentence: str) -> None:
    assert parse_incident_blocker(sentence) is None


@given(st.text(min_size=1), st.text(), st.booleans())
def test_a_guards_answer_is_read_as_it_was_given(name: str, text: str, passed: bool) -> None:  # noqa: FBT001 - drawn
    assert is_guard_passed(str(GuardAnswer(name, passed=passed, text=text))) is passed

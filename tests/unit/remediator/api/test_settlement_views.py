"""What is told of a person's word on an incident, and of an alert that reached nobody, to who asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remediator.api.record_views import settlement_view
from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import NodeRecord
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.views import SettlementView
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from tests.unit.remediator.api.test_writes import until
from vocabulary.finding import Severity

SAID_AT, QUIET_S = 1000.0, 600.0
FATAL = replace(finding("n1"), severity=Severity.FATAL)
NODES = {"n1": NodeRecord(node="n1"), "n2": NodeRecord(node="n2", state=NodeState.OPERATOR_HELD)}


def word(at: float = SAID_AT) -> Settlement:
    return Settlement("inc-1", "ann resolved it", at)


def test_no_word_is_none() -> None:
    assert settlement_view([FATAL], {}, NODES, QUIET_S) is None


@pytest.mark.parametrize(
    ("found", "until"),
    [
        (FATAL, SAID_AT + QUIET_S),
        (replace(FATAL, severity=Severity.ERROR), None),
        (FATAL.cleared(SAID_AT, "reset"), None),
        (replace(FATAL, node="n2"), None),
        (replace(FATAL, node="gone"), None),
    ],
)
def test_a_word_ends_for_what_is_fatal_on_a_node_that_is_nobodys(found: Any, until: float | None) -> None:
    assert settlement_view([found], {found.id: word()}, NODES, QUIET_S) == SettlementView(
        "ann resolved it", SAID_AT, until
    )


def test_of_several_words_the_last_is_told_and_the_first_end() -> None:
    other = replace(FATAL, id="f2")
    told = settlement_view([FATAL, other], {FATAL.id: word(), other.id: word(SAID_AT + 50)}, NODES, QUIET_S)
    assert told == SettlementView("ann resolved it", SAID_AT + 50, SAID_AT + QUIET_S)


POLICY = """\
playbook: 1
about: one rule, that only tells
rules:
  - name: tell
    why: a person is to look
    match: {findings: ["row_remap/*"]}
    steps: [alert, watch]
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Inside]]:
    """Start a controller that was told of a fatal fault on n1."""
    started: list[Inside] = []

    def run(**more: Any) -> Inside:
        started.append(Inside(tmp_path, **more))
        assert started[-1].call("POST", "/v1/nodes/n1/report", "n1", report(findings=(FATAL,))).status == 200
        return started[-1]

    yield run
    for centre in started:
        centre.close()


def listed(centre: Inside, state: str) -> dict[str, Any]:
    (found,) = centre.call("GET", f"/v1/incidents?state={state}", "vic").json()["incidents"]
    return dict(found)


def test_for_how_long_a_word_counts_stands_with_the_incident(start: Callable[..., Inside]) -> None:
    centre = start(again_after_s=QUIET_S)
    path = f"/v1/incidents/{listed(centre, 'open')['id']}"
    assert "word" not in centre.call("GET", path, "vic").json()
    assert centre.call("POST", f"{path}/resolve", "ann", {"text": "reseated"}).status == 204
    told = centre.call("GET", path, "vic").json()["word"]
    assert told["said"] == "ann resolved it"
    assert told["until"] == told["at"] + QUIET_S


def test_a_list_says_that_nobody_was_told(start: Callable[..., Inside], tmp_path: Path) -> None:
    playbook = tmp_path / "tell.yaml"
    playbook.write_text(POLICY)
    centre = start(mode=Mode.ACT, playbooks=(str(playbook),))
    until(lambda: listed(centre, "open")["steps"][0]["state"] == "succeeded")
    for state in ("open", "all"):
        assert listed(centre, state)["steps"][0]["lacks"] == "told nobody"

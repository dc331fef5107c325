"""That a plan has ended ends no incident whose findings are still asserted, nor says that it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.model.journal_records import IncidentState
from remediator.model.pipeline_inputs import IncidentCommand, IncidentCommandKind
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

RULE = """
playbook: 1
rules:
  - {name: r, why: x, steps: [STEPS]}
"""


def story(tmp_path: Path, steps: str) -> Story:
    path = tmp_path / "p.yaml"
    path.write_text(RULE.replace("STEPS", steps))
    return Story(settings(policy=load_policy([path])))


@pytest.mark.parametrize(
    "steps", ["{alert: look}", "{ticket: look}", "[{alert: look}, {ticket: look}]", "{exec: hook}"]
)
def test_a_plan_that_only_tells_leaves_the_incident_open_until_its_findings_clear(tmp_path: Path, steps: str) -> None:
    found = story(tmp_path, steps)
    finding = found.finding("fan/x", Severity.ERROR)
    for action in found.open_actions("exec"):
        found.scheduler_answers(action.verb)
    found.after(3600)
    (incident,) = found.state.incidents.values()
    assert incident.state is IncidentState.OPEN
    assert incident.outcome == "the plan has ended, but the findings are still active"
    assert len([a for a in found.actions.values() if a.verb == "alert"]) <= 1, "and nobody is told again"
    found.clear(finding)
    assert not found.state.incidents
    (over,) = found.incidents.values()
    assert over.outcome == "its findings cleared"


def test_a_person_may_say_that_it_is_over(tmp_path: Path) -> None:
    found = story(tmp_path, "{alert: look}")
    found.finding("fan/x", Severity.ERROR)
    (incident,) = found.state.incidents.values()
    word = IncidentCommand(
        at=found.now, node=incident.node, incident=incident.id, word=IncidentCommandKind.RESOLVE, actor="ann"
    )
    found.submit(word)
    found.after(10)
    assert not found.state.incidents


def test_what_is_only_seen_is_over_when_it_was_quiet(tmp_path: Path) -> None:
    found = story(tmp_path, "{alert: look}")
    found.finding("fan/x", Severity.INFO)
    found.after(500)
    assert found.state.incidents, "people were told a moment ago"
    found.after(500)
    assert not found.state.incidents


def test_what_joins_later_is_decided_as_ever(tmp_path: Path) -> None:
    found = Story()
    found.finding("xid/901", Severity.UNCLASSIFIED)
    found.finding("xid/79", Severity.FATAL)
    assert sorted(found.state.held) == ["n1"]

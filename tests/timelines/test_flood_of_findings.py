"""A node that tells of very much fills nobody's memory, and hides neither its own faults nor another's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remediator.incidents import finding_intake
from remediator.incidents.finding_intake import OVERFLOW
from remediator.model.pipeline_inputs import FindingsReported
from remediator.state import occurrence_history
from tests.timelines.timeline import Story
from vocabulary.finding import Finding, Severity


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_intake, "KNOWN_MAX", 20)
    monkeypatch.setattr(finding_intake, "JOINED_MAX", 3)
    monkeypatch.setattr(finding_intake, "REACTING_JOINED_MAX", 5)
    monkeypatch.setattr(finding_intake, "FATAL_JOINED_MAX", 8)


def flood(story: Story, like: Finding, number: int, *, active: bool = True, name: str = "f") -> tuple[Finding, ...]:
    """So many more, told at once."""
    first, now = like.first_seen, story.now
    many = tuple(replace(like, id=f"{name}{n}", active=active, first_seen=first, last_seen=now) for n in range(number))
    story.submit(FindingsReported(at=now, node=like.node, boot_id="b", changes=many))
    return many


def noise(story: Story) -> Finding:
    return story.finding("made/up", Severity.INFO)


def known(story: Story, node: str = "n1") -> int:
    return len(story.state.findings_on(node))


def test_what_goes_beyond_is_counted_as_one_thing_and_said_once_a_report() -> None:
    story = Story()
    flood(story, noise(story), 50, active=False)
    assert known(story) == 20
    [over] = [o for o in story.occurrences if o.kind == OVERFLOW]
    assert (over.node, over.count) == ("n1", 31)
    [line] = [event for event in story.audit if event.kind == "findings_counted"]
    assert "31 more are counted but not stored, the first is made/up" in line.text
    flood(story, noise(story), 5, active=False)
    assert sum(o.count for o in story.occurrences if o.kind == OVERFLOW) == 31 + 1, "those that are known are no more"


def test_another_node_has_room_of_its_own() -> None:
    story = Story()
    flood(story, noise(story), 50, active=False)
    story.finding("xid/79", Severity.FATAL, node="n2")
    assert story.state.incident_of("n2")


def test_its_own_fault_is_not_hidden_behind_its_noise() -> None:
    story = Story()
    flood(story, noise(story), 50, active=False)
    fault = story.finding("xid/79", Severity.FATAL)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert fault.id in incident.findings
    flood(story, fault, 50, name="grave")
    assert known(story) == 40, "and that has an end, too"


def test_an_hour_after_it_is_over_there_is_room_again() -> None:
    story = Story()
    flood(story, noise(story), 50, active=False)
    story.after(3700)
    assert known(story) == 0
    flood(story, noise(story), 5, active=False, name="later")
    assert known(story) == 6


def test_an_incident_takes_in_so_many_and_the_gravest_longest() -> None:
    story = Story()
    error = story.finding("xid/79", Severity.ERROR)
    flood(story, error, 10)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert len(incident.findings) == 5
    fatal = story.finding("xid/79", Severity.FATAL)
    assert fatal.id in story.state.incidents[incident.id].findings
    story.submit(
        FindingsReported(at=story.now, node="n1", boot_id="b", changes=(replace(fatal, severity=Severity.INFO),))
    )
    grown = replace(error, severity=Severity.FATAL)
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(grown,)))
    assert error.id in story.state.incidents[incident.id].findings, "one that it has may grow graver"


def test_what_found_no_place_in_an_incident_opens_the_next() -> None:
    story = Story()
    odd = story.finding("made/up", Severity.WARNING)
    left = flood(story, odd, 10)[-1]
    before = story.state.incident_of("n1")
    assert before is not None
    assert left.id not in before.findings
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", active=(left,)))
    story.after(600).after(600)
    after = story.state.incident_of("n1")
    assert after is not None
    assert after.id != before.id
    assert left.id in after.findings


def test_what_opens_one_brings_only_so_much_context_along() -> None:
    story = Story()
    flood(story, noise(story), 15, active=False)
    fault = story.finding("xid/79", Severity.FATAL)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.findings[-1] == fault.id
    assert len(incident.findings) == 4


def test_kinds_without_end_are_counted_under_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrence_history, "KINDS_MAX", 4)
    story = Story()
    like = noise(story)
    for number in range(10):
        made_up = replace(like, id=f"k{number}", code=f"c{number}")
        story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(made_up,)))
    names = ["made/up", "made/c0", "made/c1", "made/c2"]
    assert [o.kind for o in story.occurrences] == [*names, *[OVERFLOW] * 7]
    story.finding("made/up", Severity.INFO)
    story.finding("made/c4", Severity.INFO, node="n2")
    assert [o.kind for o in story.occurrences[-2:]] == ["made/up", "made/c4"]

"""An incident is called after the worst that it is about, whatever was seen first."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.pipeline_inputs import FindingsReported
from tests.timelines.timeline import Story
from vocabulary.finding import Severity


def title(story: Story) -> str:
    incident = story.state.incident_of("n1")
    assert incident is not None
    return incident.title


def test_a_graver_finding_that_joins_gives_the_title() -> None:
    story = Story()
    story.finding("nvml/unavailable", Severity.WARNING)
    assert title(story).startswith("nvml/unavailable")
    story.finding("xid/79", Severity.FATAL)
    assert title(story).startswith("xid/79")


def test_no_milder_nor_equal_one_takes_it_away() -> None:
    story = Story()
    grave = story.finding("xid/79", Severity.FATAL)
    for kind, severity in (
        ("xid/48", Severity.FATAL),
        ("nvml/unavailable", Severity.WARNING),
        ("xid/63", Severity.INFO),
    ):
        story.finding(kind, severity)
    assert title(story).startswith("xid/79")
    story.clear(grave)
    story.finding("nvml/lost", Severity.WARNING)
    assert title(story).startswith("xid/79"), "what the plan mends stays the name of the incident"


def test_a_finding_that_grows_graver_gives_the_title() -> None:
    story = Story()
    story.finding("nvml/unavailable", Severity.WARNING)
    mild = story.finding("ecc/remap", Severity.WARNING)
    graver = replace(mild, severity=Severity.ERROR, count=2, last_seen=story.now)
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(graver,)))
    assert title(story).startswith("ecc/remap")

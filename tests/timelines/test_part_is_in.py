"""A node that waits for a new part: what brings it back, and what does not. The guide for people on call says the same."""

from __future__ import annotations

from remediator.model.pipeline_inputs import ManualCordon, ManualCordonKind
from remediator.overrides.manual_cordon import UNCORDON
from tests.timelines.timeline import Story
from vocabulary.finding import Severity


def test_a_new_boot_brings_no_node_back_that_waits_for_a_part_and_an_uncordon_does() -> None:
    story = Story()
    lost = story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"
    story.after(60).clear(lost)  # the part is in, the machine was booted
    story.after(86400)
    assert (story.node_state(), story.state.held) == ("replacing", {"n1"}), "the way back is people's"
    assert not story.open_actions("resume")
    story.submit(
        ManualCordon(
            at=story.now, node="n1", word=ManualCordonKind.UNCORDON, actor="ann", text="GPU 5 replaced", address=""
        )
    )
    story.after(1).scheduler_answers(UNCORDON)
    assert (story.node_state(), story.state.held) == ("probation", set())
    assert not story.state.incidents

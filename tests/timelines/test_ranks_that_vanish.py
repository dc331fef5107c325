"""Slowness that one signal speaks of takes no node from a job (invariant 6), also where its ranks are gone for a moment.

A job that starts again in place, an agent that does, and a report without ranks look alike: the scheduler knows better.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.decisions.approval import list_awaited_approvals
from remediator.model.journal_records import Action
from remediator.model.pipeline_inputs import HoldsObserved, StepApproved
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

GONE_S = 300.0  # so long ranks must be gone, written once more
STRAGGLER = ("straggler/gpu", {"level": "now", "confirmed": "unknown"})
LEMON = ("lemon/suspected", {"advice": "test"})


def suspected(kind: str = STRAGGLER[0], evidence: dict[str, str] | None = None) -> Story:
    story = Story()
    story.job("train", "n1", "n2")
    story.finding(kind, Severity.WARNING, evidence=evidence or STRAGGLER[1])
    return story.after(700)


def scheduler_says(story: Story, *jobs: str, schedulable: bool | None = True, evictable: bool = False) -> None:
    owner = HoldOwner.US if schedulable is False else HoldOwner.NOBODY
    drained = schedulable is False and not jobs
    hold = SchedulerNodeState(
        "n1", schedulable, drained=drained, owner=owner, reason="x", jobs=jobs, evictable=evictable
    )
    story.submit(HoldsObserved(at=story.now, holds=(hold,)))


def taken(story: Story) -> list[Action]:
    return [a for a in story.actions.values() if a.verb in ("cordon", "evict")]


@pytest.mark.parametrize(("kind", "evidence"), [STRAGGLER, LEMON], ids=["straggler", "lemon"])
@pytest.mark.parametrize("gone_s", [2, 299])
def test_a_job_that_starts_again_in_place_keeps_its_node(kind: str, evidence: dict[str, str], gone_s: float) -> None:
    story = suspected(kind, evidence)
    story.no_job("n1", "n2")
    story.after(gone_s)
    story.job("train", "n1", "n2", attempt=2)
    story.after(7200)
    assert not taken(story)


@pytest.mark.parametrize(("kind", "evidence"), [STRAGGLER, LEMON], ids=["straggler", "lemon"])
def test_a_node_whose_job_has_gone_is_taken_for_a_test(kind: str, evidence: dict[str, str]) -> None:
    story = suspected(kind, evidence)
    story.no_job("n1", "n2")
    story.after(299)
    assert not taken(story)
    story.after(1)
    assert [a.verb for a in taken(story)] == ["cordon"], "time alone must tell, nobody speaks of an empty node again"


def test_what_the_scheduler_has_on_the_node_is_a_job_although_no_rank_is_told_of() -> None:
    story = suspected()
    scheduler_says(story, "train")
    story.no_job("n1")
    story.after(86_400)
    assert not taken(story)
    scheduler_says(story)
    assert [a.verb for a in taken(story)] == ["cordon"]


def test_a_scheduler_that_cannot_say_what_runs_does_not_say_that_nothing_does() -> None:
    story = suspected()
    scheduler_says(story, schedulable=None)
    story.no_job("n1")
    story.after(86_400)
    assert not taken(story)


@pytest.mark.parametrize(("kind", "evidence"), [STRAGGLER, LEMON], ids=["straggler", "lemon"])
def test_a_job_that_came_before_the_cordon_is_not_asked_to_leave_and_the_node_is_tested_after_it(
    kind: str, evidence: dict[str, str]
) -> None:
    story = suspected(kind, evidence)
    story.no_job("n1", "n2")
    story.after(300)
    story.job("next", "n1")
    story.scheduler_answers("cordon")
    for _ in range(100):
        scheduler_says(story, "next", schedulable=False, evictable=True)
        story.after(3600)
    assert [a.verb for a in taken(story)] == ["cordon"]
    story.no_job("n1")
    scheduler_says(story, schedulable=False)
    story.orders_end("run_preflight")
    assert story.open_actions("resume"), "it waited for days, and nobody had to be called"
    story.scheduler_answers("resume")
    assert story.node_state() == "probation"


def test_a_confirmed_straggler_is_still_asked_to_leave() -> None:
    story = Story()
    story.job("train", "n1", "n2")
    story.finding("straggler/gpu", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.orders_end("checkpoint_then_eject")
    story.orders_end("collect_evidence")
    scheduler_says(story, "train", schedulable=False, evictable=True)
    assert [a.verb for a in taken(story)] == ["cordon", "evict"]


def test_a_job_that_came_before_a_person_agreed_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "playbook: 1\nrules: [{name: r, why: x, match: {job: none}, steps: [{cordon: , mode: approve}, replace]}]\n"
    )
    story = Story(settings(policy=load_policy([path])))
    story.finding("straggler/gpu", Severity.WARNING)
    story.job("next", "n1")
    incident = story.state.incident_of("n1")
    assert incident is not None
    (awaited,) = list_awaited_approvals(incident)
    story.submit(StepApproved(at=story.now, incident=incident.id, what=awaited.id, actor="ann"))
    story.after(3600)
    assert not taken(story)
    story.no_job("n1")
    story.after(299)
    assert not taken(story)
    story.after(1)
    assert [a.verb for a in taken(story)] == ["cordon"]


def test_each_rule_says_how_long_no_rank_must_have_been_there(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    rule = "  - {name: %s, why: x, match: {findings: [%s], job: none, no_job_s: %d}, steps: [cordon, replace]}\n"
    path.write_text("playbook: 1\nrules:\n" + rule % ("soon", "fan/*", 60) + rule % ("late", "disk/*", 600))
    story = Story(settings(policy=load_policy([path])))
    story.job("train", "n1", "n2")
    story.finding("fan/slow", Severity.WARNING, node="n1")
    story.finding("disk/slow", Severity.WARNING, node="n2")
    story.no_job("n1", "n2")
    story.after(59)
    assert not taken(story)
    story.after(1)
    assert [a.node for a in taken(story)] == ["n1"]
    story.after(539)
    assert [a.node for a in taken(story)] == ["n1"]
    story.after(1)
    assert [a.node for a in taken(story)] == ["n1", "n2"]


MOMENTS = st.tuples(
    st.sampled_from([0.5, 2.0, 60.0, 299.0, 301.0, 4000.0]),
    st.sampled_from(["", "ranks", "no ranks", "job", "no job", "no word"]),
)


@hypothesis.settings(max_examples=200, deadline=None)
@given(st.lists(MOMENTS, max_size=30))
def test_no_order_of_events_takes_the_node_from_a_job(moments: list[tuple[float, str]]) -> None:
    story = suspected()
    last_rank, scheduled = float("inf"), False
    for seconds, what in moments:
        story.after(seconds)
        if taken(story):
            break
        if what == "ranks":
            last_rank = float("inf")
            story.job("train", "n1")
        elif what == "no ranks":
            last_rank = min(last_rank, story.now)
            story.no_job("n1")
        elif what:
            scheduled = what != "no job"
            scheduler_says(story, *["train"] * (what == "job"), schedulable=None if what == "no word" else True)
        if taken(story):
            break
    if taken(story):
        assert not scheduled
        assert story.now - last_rank >= GONE_S

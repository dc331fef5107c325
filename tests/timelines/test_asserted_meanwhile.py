"""What is asserted while something else is under way: it is never lost, and no node counts as well in spite of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.model.journal_records import ActionState, IncidentState
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import GPU, Story, settings
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

OTHER_GPU = Component(ComponentKind.GPU, "GPU-4c", "0000:4c:00.0", 1)


def resuming(story: Story) -> Finding:
    """n1 has passed its test, and the scheduler is asked to take it back."""
    finding = story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("reset_gpu")
    story.clear(finding)
    story.after(1)
    story.orders_end("run_preflight")
    story.after(1)
    assert story.open_actions("resume")
    return finding


@pytest.mark.parametrize(
    ("kind", "severity", "component"),
    [
        ("xid/62", Severity.FATAL, OTHER_GPU),
        ("row_remap/pending", Severity.ERROR, GPU),
        ("fan/slow", Severity.ERROR, GPU),
    ],
)
def test_a_node_does_not_come_back_while_something_new_is_asserted(
    kind: str, severity: Severity, component: Component
) -> None:
    story = Story()
    resuming(story)
    story.finding(kind, severity, component=component)
    assert not story.open_actions("resume")
    assert [a.state for a in story.actions.values() if a.verb == "resume"] == [ActionState.CANCELLED]
    assert story.open_actions("cordon"), "the resume may have been carried out: our hold is asked for again"
    assert (story.node_state(), story.state.held) == ("replacing", {"n1"})
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.WAITING
    assert any(f"no preflight passed since {kind} appeared" in event.text for event in story.audit)


def test_a_warning_keeps_no_tested_node_out() -> None:
    story = Story()
    resuming(story)
    story.finding("throttle/thermal", Severity.WARNING)
    story.scheduler_answers("resume")
    assert story.node_state() == "probation"


def test_trying_the_way_back_again_does_not_get_round_the_test(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    steps = "[drain, reset_gpu, preflight: gate, {return_to_service: , retry: {times: 2, after_s: 5}}]"
    path.write_text(f"playbook: 1\nrules:\n  - {{name: r, why: w, steps: {steps}}}\n")
    story = Story(settings(policy=load_policy([path])))
    resuming(story)
    story.clear(story.finding("fan/slow", Severity.ERROR))
    story.after(6).after(6)
    assert not story.open_actions("resume")
    assert story.state.held == {"n1"}

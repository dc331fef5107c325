"""A job's own trouble: which of the node's jobs are told, what, and that no node is blamed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import OrderAnswered, PlacementChanged, StepApproved
from remediator.model.plan_steps import Mode
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

RANK = Component(ComponentKind.RANK, name="train.1")


RULE = """
playbook: 1
rules:
  - {name: r, why: x, steps: [{notify_trainer: TOLD, on_failure: {alert: a}}, watch]}
"""


def story(tmp_path: Path, told: str, mode: Mode = Mode.ACT) -> Story:
    path = tmp_path / "p.yaml"
    path.write_text(RULE.replace("TOLD", told))
    found = Story(settings(policy=load_policy([path]), mode=mode))
    found.submit(PlacementChanged(at=found.now, node="n1", jobs=(JobRef("other", 1), JobRef("train", 1))))
    found.job("train", "n2")
    return found


def trouble(found: Story, **evidence: str | int) -> None:
    found.finding("training/loss_spike", Severity.WARNING, component=RANK, evidence=evidence)


def orders(found: Story) -> list[Order]:
    return sorted((a.order for a in found.actions.values() if a.order is not None), key=lambda o: (o.job, o.node))


TRAIN = {"job": "train", "attempt": 1}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("revert", OrderKind.REVERT),
        ("save_and_stop", OrderKind.CHECKPOINT_THEN_STOP),
        ("save_and_relaunch", OrderKind.CHECKPOINT_THEN_EJECT),
    ],
)
def test_only_the_job_in_trouble_is_told_on_all_its_nodes_and_none_is_blamed(
    tmp_path: Path, told: str, kind: OrderKind
) -> None:
    found = story(tmp_path, told)
    trouble(found, **TRAIN, last_good_step=41)

    each = orders(found)

    assert [(o.kind, o.job, o.attempt, o.node, o.condemned) for o in each] == [
        (kind, "train", 1, "n1", ()),
        (kind, "train", 1, "n2", ()),
    ]
    assert len({o.joint for o in each}) == 1
    assert {o.before_step for o in each} == {41 if told == "revert" else -1}
    assert not found.open_actions("cordon")


@pytest.mark.parametrize("told", ["graceful", "abort"])
def test_a_nodes_trouble_is_told_to_all_its_jobs_which_then_go_on_without_it(tmp_path: Path, told: str) -> None:
    found = story(tmp_path, told)
    trouble(found, **TRAIN, last_good_step=41)

    assert [(o.job, o.node, o.condemned, o.before_step) for o in orders(found)] == [
        ("other", "n1", ("n1",), -1),
        ("train", "n1", ("n1",), -1),
        ("train", "n2", ("n1",), -1),
    ]


def test_a_node_heard_of_later_gets_the_same_whatever_is_known_by_then(tmp_path: Path) -> None:
    found = story(tmp_path, "revert")
    trouble(found, **TRAIN, last_good_step=41)
    found.finding("training/gradient_spike", Severity.WARNING, component=RANK, evidence={**TRAIN, "last_good_step": 38})
    found.job("train", "n3")
    found.after(1)

    assert [(o.node, o.before_step) for o in orders(found)] == [("n1", 41), ("n2", 41), ("n3", 41)]


def test_of_several_findings_the_earliest_step_counts(tmp_path: Path) -> None:
    found = story(tmp_path, "revert", Mode.APPROVE)
    trouble(found, **TRAIN, last_good_step=41)
    found.finding("training/gradient_spike", Severity.WARNING, component=RANK, evidence={**TRAIN, "last_good_step": 38})
    (incident,) = found.state.incidents.values()
    assert orders(found) == []
    found.submit(StepApproved(at=found.now, incident=incident.id, what=incident.decision, actor="ann"))

    assert {o.before_step for o in orders(found)} == {38}


@pytest.mark.parametrize(
    "evidence",
    [{}, TRAIN, TRAIN | {"last_good_step": "-1"}, TRAIN | {"attempt": 2, "last_good_step": 41}, {"last_good_step": 41}],
)
def test_who_does_not_know_how_far_goes_nowhere_and_says_so(tmp_path: Path, evidence: dict[str, str | int]) -> None:
    found = story(tmp_path, "revert")
    trouble(found, **evidence)
    found.after(1)

    assert orders(found) == []
    assert [a.verb for a in found.actions.values()] == ["alert"]


def test_a_job_that_could_not_go_back_is_shown_to_people(tmp_path: Path) -> None:
    found = story(tmp_path, "revert")
    trouble(found, **TRAIN, last_good_step=41)
    found.orders_end("revert", OrderState.FAILED)
    found.after(1)

    assert "alert" in {action.verb for action in found.actions.values()}


COLLECT = """
playbook: 1
rules:
  - {name: r, why: x, steps: [collect_evidence, watch]}
"""


def collecting(tmp_path: Path, kind: str, **evidence: str | int) -> Story:
    path = tmp_path / "p.yaml"
    path.write_text(COLLECT)
    found = Story(settings(policy=load_policy([path]), mode=Mode.ACT))
    found.submit(PlacementChanged(at=found.now, node="n2", jobs=(JobRef("other", 1), JobRef("train", 1))))
    found.job("train", "n3")
    found.job("other", "n4")
    found.finding(kind, Severity.WARNING, component=RANK, evidence=evidence, node="n2")
    return found


def test_after_a_hang_all_nodes_of_the_job_show_their_stacks(tmp_path: Path) -> None:
    found = collecting(tmp_path, "hang/stuck_compute", **TRAIN)
    assert [(o.kind, o.node) for o in orders(found)] == [(OrderKind.COLLECT_EVIDENCE, n) for n in ("n2", "n3")]


@pytest.mark.parametrize(
    ("kind", "evidence"), [("hang/stuck_compute", {}), ("hang/nobody", TRAIN | {"attempt": 2}), ("xid/79", TRAIN)]
)
def test_otherwise_only_the_node_does(tmp_path: Path, kind: str, evidence: dict[str, str | int]) -> None:
    assert [o.node for o in orders(collecting(tmp_path, kind, **evidence))] == ["n2"]


@pytest.mark.parametrize("own", [OrderState.SUCCEEDED, OrderState.FAILED])
def test_only_the_nodes_own_evidence_decides_the_step(
    tmp_path: Path, own: OrderState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.timelines.timeline.TOLD_AT_ONCE", ())
    found = collecting(tmp_path, "hang/stuck_compute", **TRAIN)
    other = OrderState.FAILED if own is OrderState.SUCCEEDED else OrderState.SUCCEEDED
    for action, state, step in zip(found.open_actions("collect_evidence"), (own, other), ("running", own), strict=True):
        update = OrderUpdate(id=action.id, state=state, at=found.now, detail="")
        found.submit(OrderAnswered(at=found.now, node=action.node, update=update))
        (incident,) = found.state.incidents.values()
        assert incident.plan[0][0].state == step

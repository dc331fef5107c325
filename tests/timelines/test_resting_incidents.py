"""A tick or a placement that passes over resting incidents changes the same as one that reviews every incident."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tests.timelines.timeline as stories
from remediator import pipeline
from remediator.decisions.approval import list_awaited_approvals
from remediator.decisions.isolation_budget import IsolationBudget, level_only_budget
from remediator.model.journal_records import Answer
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import AnyInput, StepApproved, Tick, TopologyObserved
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import load_policy
from remediator.state import incident_reviews
from remediator.state.cluster_state import ClusterState
from tests.timelines.test_invariants import BY_HAND, NODES, TIGHT, Teller
from tests.timelines.timeline import GPU, Story
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

HOST = Component(ComponentKind.HOST)
KINDS = ("fan/x", *["xid/79", "xid/31", "xid/13", "net/flap", "disk/full"] * 2, "clocks/slow", "odd/thing")
EVERYTHING_A_RULE_MAY_READ = """
playbook: 1
rules:
  - name: job-at-fault
    why: several nodes of the job
    incident: job
    match: {findings: [xid/13], job: running, history: [{scope: job, distinct: nodes, at_least: 4, within_s: 9000}]}
    steps: [{alert: program}]
  - name: node-of-a-bad-job
    why: several nodes of the job, so this one leaves
    match: {findings: [xid/13], history: [{scope: job, distinct: nodes, at_least: 2, within_s: 100000}]}
    steps: [{notify_trainer: graceful}, cordon, drain, preflight, return_to_service]
  - name: quiet-elsewhere
    why: no other node has it
    match: {findings: [odd/alone], history: [{scope: cluster, of: ["odd/lost"], at_most: 0, within_s: 500}]}
    steps: [{alert: alone}]
  - name: one-of-its-job
    why: another node of the job lost something
    match: {findings: [odd/joined], history: [{scope: job, of: ["odd/lost"], at_least: 2, within_s: 9000}]}
    steps: [{alert: job}]
  - name: recorded
    why: no reaction
    match: {findings: [odd/lost]}
  - name: everywhere
    why: many nodes of the cluster lately
    match: {findings: [xid/31], history: [{scope: cluster, distinct: nodes, at_least: 3, within_s: 9000}]}
    steps: [{alert: network}]
  - name: node-at-fault
    why: several jobs on this node alone
    match: {findings: [xid/31, net/flap], history: [{scope: node, distinct: jobs, at_least: 2, within_s: 20000}]}
    guards: {history: [{scope: cluster, of: [node/isolated], at_most: 1, within_s: 900}]}
    steps: [cordon, drain, preflight, return_to_service]
  - name: flaps-alone
    why: not right after another fault
    match: {findings: [net/flap], together: {none: ["disk/*", "xid/*"], within_s: 240}}
    steps: [[cordon, {notify_trainer: graceful}], drain, {reset_gpu: , retry: {times: 2, after_s: 40}, on_failure: replace}, preflight, return_to_service]
  - name: flaps-among-others
    why: to be watched
    match: {findings: [net/flap], severities: [info, warning]}
    steps: [{watch: 250}]
  - name: full-when-idle
    why: between jobs only
    match: {findings: [disk/full], job: none, no_job_s: 200}
    steps: [cordon, drain, {preflight: gate, retry: {times: 2, after_s: 100}}, return_to_service]
  - name: long-idle
    why: between jobs only
    match: {findings: [disk/full], components: [gpu], job: none, no_job_s: 900}
    steps: [{alert: still idle}]
  - name: slow
    why: a spare takes its place
    match: {findings: [clocks/*]}
    steps: [cordon, {drain: , timeout_s: 500}, {preflight: gate, guards: {idle: true}}, return_to_service]
  - name: lost
    why: gone
    match: {findings: [xid/79], severities: [fatal, error]}
    guards: {spares: 3}
    steps: [[cordon, {notify_trainer: abort}], ticket, {alert: lost, mode: approve, timeout_s: 100}, {replace: , guards: {drained: true}}]
  - name: guarded-step
    why: waits with figures
    match: {findings: [xid/79]}
    steps: [{ticket: , timeout_s: 5000, guards: {spares: 8}}, {alert: often, guards: {history: [{scope: cluster, of: ["xid/*"], at_most: 2, within_s: 2000}]}}, cordon, drain]
  - name: fan-approved
    why: with a yes
    mode: approve
    match: {findings: [fan/*], severities: [error, fatal]}
    steps: [{alert: asked}, {ticket: , mode: approve}, cordon, drain, reboot, preflight, return_to_service]
  - name: fan-noted
    why: to be seen
    match: {findings: [fan/*]}
    steps: [{alert: fan}]
"""
WEIGHTS = BY_HAND | {
    "finding": 14,
    "drill": 2,
    "approve": 3,
    "lost_jobs": 4,
    "moved": 1,
    "back": 1,
    "after": 20,
    "soon": 10,
    "job": 12,
}
seeds = st.integers(0, 2**32)


class Compared(Story):
    """Tells a second state the same, in which nothing rests."""

    def __init__(self, rules: Any, nodes: int) -> None:
        self.thorough = ClusterState()
        self.rested = 0
        self.placed: set[str] = set()
        super().__init__(rules, nodes)

    def _tell(self, item: AnyInput) -> None:
        resting = [i for i in self.state.incidents if self.state.reviews.is_resting(i, item.at)]
        self.rested += len(resting) if isinstance(item, Tick) else 0
        self.thorough.reviews.wake_all()
        apply_input(self.thorough, item, self.rules)
        apply_input(self.state, item, self.rules)
        wanted, found = self.thorough.take_changes(), self.state.take_changes()
        assert found == wanted, f"{type(item).__name__} at {item.at} changes less"
        self.state.changes = found
        self._keep(item)

    def _keep(self, item: AnyInput) -> None:
        self.inputs.append(item)
        changes = self.state.take_changes()
        self.audit += changes.audit
        self.decisions |= changes.decisions
        self.actions |= changes.actions
        self.incidents |= changes.incidents

    def answer(self, node: str) -> Answer | None:
        incident = self.state.incident_of(node)
        return incident.answer if incident is not None else None

    def after(self, seconds: float) -> Story:
        """Tick often: a decision that is late by one tick is a difference."""
        begin = self.now
        for part in (0.25, 0.26, 40.0, seconds / 2, seconds - 0.25):
            if 0.0 < part < seconds:
                self.now = max(self.now, begin + part)
                self.submit(Tick(at=self.now))
        self.now = begin + seconds
        self.submit(Tick(at=self.now))
        return self


class Chance(Teller):
    """Findings of several kinds, and jobs that come and go."""

    story: Any

    def finding(self) -> None:
        kind, severity = self.chance.choice(KINDS), self.chance.choice(list(Severity))
        part, ago = self.chance.choice([GPU, GPU, HOST]), self.chance.choice([0.0, 0.0, 0.0, -100.0, -3600.0])
        told = self.story.finding(kind, severity, node=self.node, component=part, seen_at=self.story.now + ago)
        self.raised.append(told)

    def drill(self) -> None:
        kind = self.chance.choice(KINDS)
        self.raised.append(self.story.finding(kind, Severity.FATAL, node=self.node, injected=True))

    def approve(self) -> None:
        for incident in list(self.story.state.incidents.values()):
            for each in list_awaited_approvals(incident):
                self.story.submit(StepApproved(at=self.story.now, incident=incident.id, what=each.id, actor="ann"))

    def lost_jobs(self) -> None:
        self.story.no_job(self.node)

    def back(self) -> None:
        """Another leader's clock is behind."""
        behind = self.chance.choice([30.0, 500.0, 4000.0])
        self.story.submit(Tick(at=self.story.now - behind))
        self.story.submit(Tick(at=self.story.now - behind + 0.25))

    def moved(self) -> None:
        places = {f"n{n}": NodeLocation(rack=f"r{self.chance.randint(1, 3)}") for n in range(1, NODES + 1)}
        self.story.submit(TopologyObserved(at=self.story.now, source="file", places=places))


@pytest.fixture(autouse=True, scope="module")
def no_review_anyway() -> Iterator[None]:
    """A time or topic that is missing must show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incident_reviews, "ANYWAY_S", float("inf"))
        yield


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = Path(tmp_path_factory.mktemp("p")) / "all.yaml"
    path.write_text(EVERYTHING_A_RULE_MAY_READ)
    return load_policy([path])


LOOSE = IsolationBudget(isolated_max=4, isolations_per_hour_max=4, isolated_fraction_per_hour_max=1.0)
BY_JOB = replace(level_only_budget(9), ejects_per_job_hour_max=1, ejects_per_job_day_max=2)
BY_SHARE = replace(level_only_budget(0), isolated_fraction_max=0.25)
BUDGETS = (TIGHT, replace(TIGHT, breaker_nodes_min=NODES), LOOSE, BY_JOB, BY_SHARE)


def tell(seed: int, policy: Any) -> Compared:
    budget = BUDGETS[seed % len(BUDGETS)]
    story = Compared(stories.settings(budget=budget, **({"policy": policy} if seed % 7 else {})), NODES)
    story.check_level = False  # held against limits elsewhere
    Chance(story, seed, WEIGHTS).play()  # type: ignore[arg-type]  # as it tells a watched story
    return story


# The same stories in every run, as in `test_invariants`.
@given(seeds)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_tick_that_passes_over_resting_incidents_changes_the_same(readers: Any, seed: int) -> None:
    tell(seed, readers)


@pytest.mark.parametrize(("limits", "seconds"), [((1, 9), 3600.0), ((9, 1), 86_400.0)])
def test_a_job_that_lost_a_node_loses_another_once_its_limit_allows(
    readers: Any, limits: tuple[int, int], seconds: float
) -> None:
    budget = replace(level_only_budget(9), ejects_per_job_hour_max=limits[0], ejects_per_job_day_max=limits[1])
    story = Compared(stories.settings(budget=budget, policy=readers), NODES)
    story.job("a", "n1", "n2", "n3")
    story.finding("fan/x", Severity.ERROR, node="n3")
    first, second = "n1", "n2"
    story.finding("xid/13", Severity.ERROR, node=second)
    story.after(1.0)
    story.finding("xid/13", Severity.ERROR, node=first)
    story.after(1.0)
    assert [story.answer(node) for node in (first, second, "n3")] == [Answer.ACT, Answer.BLOCKED, Answer.BLOCKED]
    story.hold(first, owner=HoldOwner.OPERATOR)
    story.after(seconds - 2.0)
    assert story.answer(second) is Answer.BLOCKED
    story.after(2.0)
    assert story.answer(second) is Answer.ACT


def test_an_occurrence_elsewhere_counts_so_long_and_no_longer(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.finding("odd/lost", Severity.WARNING, node="n2")
    story.finding("odd/alone", Severity.WARNING)
    story.after(499.5)
    assert story.answer("n1") is None
    story.after(1.0)
    assert story.answer("n1") is Answer.ACT


def test_what_another_node_of_the_job_shows_counts_at_the_next_tick(readers: Any) -> None:
    budget = level_only_budget(9)
    story = Compared(stories.settings(policy=readers, budget=budget, mode=Mode.OBSERVE), NODES)
    story.job("a", "n1", "n2")
    story.finding("odd/lost", Severity.WARNING, node="n2")
    story.finding("odd/joined", Severity.WARNING)
    story.after(1.0)
    story.finding("odd/lost", Severity.WARNING, node="n2")
    story.after(0.25)
    assert [d.rule for d in story.decisions.values() if d.node == "n1"][-1:] == ["one-of-its-job"]


def test_what_other_nodes_show_counts_at_the_next_tick(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    for node in ("n1", "n2"):
        story.finding("xid/31", Severity.WARNING, node=node)
        story.after(1.0)
    assert story.answer("n1") is None
    story.finding("xid/31", Severity.WARNING, node="n3")
    story.after(0.25)
    assert story.answer("n1") is Answer.ACT


def test_a_spare_that_becomes_free_counts_at_the_next_tick(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.job("a", *(f"n{n}" for n in range(2, 10)))
    story.hold("n10", owner=HoldOwner.SCHEDULER)
    story.finding("xid/79", Severity.FATAL)
    story.after(1.0)
    assert story.answer("n1") is Answer.BLOCKED
    story.hold("n10", owner=HoldOwner.NOBODY, schedulable=True)
    story.after(0.25)
    assert story.answer("n1") is Answer.ACT


def test_a_watch_ends_when_it_has_been_quiet_for_so_long(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.finding("xid/31", Severity.INFO)
    story.finding("net/flap", Severity.INFO)
    story.after(249.5)
    assert story.answer("n1") is Answer.ACT
    story.after(1.0)
    assert story.state.incident_of("n1") is None


def test_what_was_seen_just_now_counts_so_long_and_no_longer(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, mode=Mode.OBSERVE, budget=level_only_budget(9)), NODES)
    story.finding("fan/x", Severity.WARNING)
    story.finding("net/flap", Severity.INFO)
    story.after(299.5)
    assert [d.rule for d in story.decisions.values()] == ["fan-noted", "flaps-alone"]
    story.after(1.0)
    assert [d.rule for d in story.decisions.values()] == ["fan-noted", "flaps-alone", "fan-noted"]


def test_a_guarded_step_shows_the_figures_it_waits_for(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.job("a", *(f"n{n}" for n in range(2, 8)))
    story.finding("xid/79", Severity.WARNING)
    story.after(1.0)
    story.hold("n9", owner=HoldOwner.OPERATOR)
    story.after(1.0)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.plan[0][0].detail == "refused spares: 4 free, 8 required"


def test_a_job_that_left_in_the_future_has_just_left(readers: Any) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.job("a", "n1")
    story.finding("fan/x", Severity.WARNING)
    story.no_job("n1")
    story.now -= 500.0
    story.hold("n1", schedulable=True, owner=HoldOwner.NOBODY)
    story.after(1.0)
    left_at = story.state.nodes["n1"].left_at
    assert left_at is not None
    assert left_at <= story.now


def test_resting_incidents_are_passed_over(readers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(1)), NODES)
    for node in ("n1", "n2"):
        story.finding("xid/79", Severity.FATAL, node=node)
    story.after(60.0)
    seen: list[str] = []
    monkeypatch.setattr(pipeline, "review_incident", lambda _state, incident, *_, **__: seen.append(incident))
    apply_input(story.state, Tick(at=story.now + 0.25), story.rules)
    assert seen == []
    other = replace(story.rules, budget=level_only_budget(8))
    apply_input(story.state, Tick(at=story.now + 0.5), other)
    assert len(seen) == 2, "other settings, and both are reviewed"


def test_an_incident_is_reviewed_after_a_while_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_reviews, "ANYWAY_S", 60.0)
    reviews = incident_reviews.IncidentReviews()
    reviews.rest("one", 1000.0, (), ())
    assert reviews.is_resting("one", 1059.9)
    assert not reviews.is_resting("one", 1060.0)

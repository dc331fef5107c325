"""What must always hold, over random timelines: hostile reports, operators, drills, and a policy that would drain everything."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tests.timelines.timeline as stories
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import ActionState
from remediator.model.pipeline_inputs import (
    ActionCancelled,
    ActionEnded,
    BreakerReset,
    FindingsReported,
    HoldsObserved,
    IncidentCommand,
    IncidentCommandKind,
    ManualCordon,
    ManualCordonKind,
    ModeSet,
    NodeCommand,
    NodeCommandKind,
    SilenceObserved,
    Tick,
)
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.audited_timeline import Limits, Watched
from tests.timelines.operator_audit import Worded
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderState

NODES = 12
TIGHT = IsolationBudget(
    isolated_max=3,
    isolations_per_hour_max=3,
    isolated_fraction_per_hour_max=1.0,
    isolation_gap_s=120.0,
    common_cause_nodes=4,
    breaker_nodes_min=3,
    breaker_failures=2,
)
DRAIN_ALL = """
playbook: 1
rules:
  - name: everything-out
    why: a mistake that a person made
    steps: [[cordon, {notify_trainer: abort}], drain, {reset_gpu: , on_failure: replace}, preflight, return_to_service]
"""
DAY_S = 86_400.0
HANDS = ("cordon_by_hand", "uncordon_by_hand")
EVENTS = 150
WEIGHTS = {
    "finding": 8, "drill": 1, "again": 3, "cordoned": 4, "drained": 3, "operator": 2, "takes_over": 1, "lifts": 1, "word": 1,
    "forgets": 1, "orders": 4, "goes_on": 20, "resumed": 3, "cleared": 3, "job": 2, "silent": 1, "reset": 1, "after": 10,
}  # fmt: skip
BY_HAND = WEIGHTS | {"by_hand": 4, "hand_answered": 4, "cancel": 2, "mode": 2}
SPOKEN = BY_HAND | {"resolve": 6, "stream": 24, "mode": 4, "soon": 8}
TIGHT_AGAIN = Limits(level=3, per_hour=3, gap_s=120.0, per_job_hour=1, per_job_day=3)
seeds = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def drain_all(tmp_path_factory: pytest.TempPathFactory) -> object:
    path = Path(tmp_path_factory.mktemp("p")) / "all.yaml"
    path.write_text(DRAIN_ALL)
    return load_policy([path])


class Teller:
    """Turns chance into inputs: mostly what moves a plan on, and between it what may do harm."""

    def __init__(self, story: Watched, seed: int, weights: dict[str, int] = WEIGHTS) -> None:
        self.story = story
        self.weights = weights
        self.chance = random.Random(seed)  # noqa: S311 - the same story every time
        self.raised: list[Finding] = []

    def play(self) -> Watched:
        for what in self.chance.choices(list(self.weights), list(self.weights.values()), k=EVENTS):
            self.story.now += 0.01  # ids follow from a cause and its time: what opens twice in one instant is one thing
            getattr(self, what)()
        return self.story

    @property
    def node(self) -> str:
        return f"n{self.chance.randint(1, NODES)}"

    @property
    def one_held(self) -> str:
        return self.chance.choice([*sorted(self.story.state.held), self.node])

    def finding(self) -> None:
        severity, ago = self.chance.choice(list(Severity)), self.chance.choice([0.0, 0.0, -7 * DAY_S, 3600.0])
        found = self.story.finding("fan/x", severity, node=self.node, seen_at=self.story.now + ago)
        self.raised.append(found)

    def drill(self) -> None:
        self.raised.append(self.story.finding("fan/x", Severity.FATAL, node=self.node, injected=True))

    def again(self) -> None:
        old = [i for i in self.story.inputs if isinstance(i, FindingsReported | HoldsObserved)]
        self.story.submit(replace(self.chance.choice(old), at=self.story.now))

    def cordoned(self) -> None:
        result = self.chance.choice([ActionResult.DONE, ActionResult.DONE, *ActionResult])
        self.story.scheduler_answers("cordon", result, self.one_held)

    def drained(self) -> None:
        self.story.hold(self.one_held, drained=True)

    def operator(self) -> None:
        holds = self.chance.random() < 0.5
        self.story.hold(self.node, owner=HoldOwner.OPERATOR if holds else HoldOwner.NOBODY, schedulable=not holds)

    def takes_over(self) -> None:
        self.story.hold(self.one_held, owner=HoldOwner.OPERATOR, drained=self.chance.random() < 0.5)

    def lifts(self) -> None:
        self.story.hold(self.one_held, owner=HoldOwner.NOBODY, schedulable=True)

    def word(self) -> None:
        word, until = self.chance.choice(list(NodeCommandKind)), self.chance.choice([None, self.story.now + 500.0])
        self.story.submit(NodeCommand(at=self.story.now, node=self.one_held, word=word, actor="ann", until=until))

    def by_hand(self) -> None:
        word, actor = self.chance.choice(list(ManualCordonKind)), self.chance.choice(["ann", "kim"])
        self.story.submit(ManualCordon(at=self.story.now, node=self.one_held, word=word, actor=actor, text="mine"))

    def hand_answered(self) -> None:
        """Mostly done, and then the scheduler shows it: before or after the answer, or never."""
        for action in [a for a in self.story.state.actions.values() if a.verb in HANDS]:
            result = self.chance.choice([ActionResult.DONE] * 4 + list(ActionResult))
            free, shown = action.verb == "uncordon_by_hand", self.chance.choice(["before", "after", "never"])
            owner = HoldOwner.NOBODY if free else HoldOwner.OPERATOR
            if result is ActionResult.DONE and shown == "before":
                self.story.hold(action.node, owner=owner, schedulable=free)
            self.story.scheduler_answers(action.verb, result, action.node)
            if result is ActionResult.DONE and shown == "after":
                self.story.hold(action.node, owner=owner, schedulable=free)

    def cancel(self) -> None:
        if actions := sorted(self.story.state.actions):
            action = self.chance.choice(actions)
            self.story.submit(ActionCancelled(at=self.story.now, action=action, actor="kim"))

    def mode(self) -> None:
        mode = self.chance.choice([*Mode, Mode.ACT, Mode.ACT, None, None])
        self.story.submit(ModeSet(at=self.story.now, mode=mode, actor="ann"))

    def resolve(self) -> None:
        if known := sorted(i.id for i in self.story.state.incidents.values() if not i.wide):
            incident = self.story.state.incidents[self.chance.choice(known)]
            said = IncidentCommand(
                at=self.story.now,
                incident=incident.id,
                node=incident.node,
                word=IncidentCommandKind.RESOLVE,
                actor="ann",
            )
            self.story.submit(said)

    def stream(self) -> None:
        """Something asserted is seen once more, now or lately, and told of."""
        asserted = {f.id for f in self.story.state.findings.values() if f.active}
        spoken_of = asserted & self.story.words.keys() if isinstance(self.story, Worded) else set()
        if known := sorted(spoken_of if spoken_of and self.chance.random() < 0.7 else asserted):
            finding = self.story.state.findings[self.chance.choice(known)]
            seen = finding.seen_again(self.story.now - self.chance.choice([0.0, 0.0, 1000.0]))
            self.story.submit(FindingsReported(at=self.story.now, node=seen.node, boot_id="b", changes=(seen,)))

    def soon(self) -> None:
        self.story.after(self.chance.choice([10.0, 400.0, 1000.0]))

    def forgets(self) -> None:
        gone = SchedulerNodeState(self.one_held, None, known=False, reason="no such node")
        self.story.submit(HoldsObserved(at=self.story.now, holds=(gone,)))

    def goes_on(self) -> None:
        """Whatever a plan waits for comes true: mostly, or nothing would ever come back."""
        node = self.one_held
        for action in [a for a in self.story.state.actions.values() if a.node == node and not a.state.final]:
            if action.order is None:
                self.story.scheduler_answers(action.verb, node=node)
            else:
                self.story.orders_end(action.verb)
        self.story.hold(node, drained=True, owner=HoldOwner.US if node in self.story.placed else HoldOwner.NOBODY)
        for finding in self.story.state.active_on(node):
            self.story.clear(finding)

    def orders(self) -> None:
        verb = self.chance.choice(["abort", "reset_gpu", "run_preflight", "run_preflight"])
        self.story.orders_end(verb, self.chance.choice([OrderState.SUCCEEDED] * 3 + [OrderState.FAILED]))

    def resumed(self) -> None:
        self.story.scheduler_answers("resume", node=self.one_held)

    def cleared(self) -> None:
        if self.raised:
            self.story.clear(self.chance.choice(self.raised))

    def job(self) -> None:
        self.story.job(self.chance.choice("ab"), self.node)

    def silent(self) -> None:
        nodes = {self.node for _ in range(self.chance.randint(0, 5))}
        last = dict.fromkeys(sorted(nodes), self.story.now - 400.0)
        self.story.submit(SilenceObserved(at=self.story.now, silent=last))

    def reset(self) -> None:
        self.story.submit(BreakerReset(at=self.story.now, actor="ann"))

    def after(self) -> None:
        self.story.after(self.chance.choice([1.0, 1.0, 130.0, 130.0, 130.0, 1300.0, 4000.0, 90_000.0]))


# Found by searches over tens of thousands of stories: each once broke a rule, of the controller or of its auditor, about a hold that
# the scheduler showed before anybody here had made it.
FOUND = (7635964, 10001767, 10002027, 10007445, 10007709, 10007827, 10008891, 10010667, 60009049)


# The same stories in every run: a longer search is for a person with an hour, and what it finds becomes one of FOUND.
@given(seeds)
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_policy_that_would_drain_everything_never_exceeds_a_limit(drain_all: object, seed: int) -> None:
    budget = replace(TIGHT, breaker_nodes_min=3 if seed % 4 == 0 else NODES)  # often closed, so that stories go on
    limits = TIGHT_AGAIN._replace(breaker_at=3 if seed % 4 == 0 else NODES)
    Teller(Watched(stories.settings(policy=drain_all, budget=budget), NODES, limits), seed).play()


@given(seeds)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_shipped_policy_never_exceeds_a_limit(seed: int) -> None:
    budget = replace(TIGHT, breaker_nodes_min=NODES)
    Teller(Watched(stories.settings(budget=budget), NODES, TIGHT_AGAIN), seed).play()


@given(seeds)
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_what_people_have_done_by_hand_breaks_no_rule(drain_all: object, seed: int) -> None:
    budget = replace(TIGHT, breaker_nodes_min=NODES)
    Teller(Watched(stories.settings(policy=drain_all, budget=budget), NODES), seed, BY_HAND).play()


@given(seeds)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_persons_word_counts_until_its_time_is_over(drain_all: object, seed: int) -> None:
    policy = {} if seed % 2 else {"policy": drain_all}
    budget = replace(TIGHT, breaker_nodes_min=NODES)
    Teller(Worded(stories.settings(**policy, budget=budget), NODES), seed, SPOKEN).play()


@pytest.mark.parametrize("seed", FOUND)
def test_stories_that_once_broke_a_rule(seed: int) -> None:
    budget = replace(TIGHT, breaker_nodes_min=NODES)
    Teller(Watched(stories.settings(budget=budget), NODES, TIGHT_AGAIN), seed).play()


def test_the_random_timelines_see_what_they_are_to_judge(drain_all: object) -> None:
    budget = replace(TIGHT, breaker_nodes_min=NODES)
    told = [Teller(Watched(stories.settings(policy=drain_all, budget=budget), NODES), seed).play() for seed in range(8)]
    seen = {node.state for story in told for node in story.state.nodes.values()}
    assert sum(story.returned for story in told) > 2
    assert sum(story.taken_over for story in told) > 2
    assert {NodeState.OPERATOR_HELD, NodeState.RETIRED, NodeState.PROBATION} <= seen
    assert max(len(story.isolated) for story in told) > 5
    told = [
        Teller(Watched(stories.settings(policy=drain_all, budget=budget), NODES), n, BY_HAND).play() for n in range(4)
    ]
    assert sum(story.by_hand for story in told) > 10
    assert sum(story.kinds().count("action_cancelled") for story in told) > 2
    assert sum(story.kinds().count("mode_set") for story in told) > 4
    words = [Worded(stories.settings(budget=budget), NODES) for _ in range(8)]
    for seed, story in enumerate(words):
        Teller(story, seed, SPOKEN).play()
    assert sum(story.spoken for story in words) > 10
    assert sum(story.held_off for story in words) > 4
    assert sum(story.came_again for story in words) > 2


def test_a_policy_that_would_drain_everything_drains_the_budget_and_no_more(drain_all: object) -> None:
    defaults = Limits(level=4, per_hour=1, gap_s=600.0, per_job_hour=1, per_job_day=3, breaker_at=10)
    story = Watched(stories.settings(policy=drain_all, budget=IsolationBudget()), 200, defaults)
    for n in range(1, 201):
        story.finding("fan/x", Severity.WARNING, node=f"n{n}")
    for _ in range(48):
        story.after(1800)
    assert len(story.state.held) <= 4
    assert len(story.isolated) <= 4


def test_reports_of_last_week_of_tomorrow_twice_and_backwards_isolate_what_they_would_have_once(
    drain_all: object,
) -> None:
    story = Watched(stories.settings(policy=drain_all, budget=TIGHT), NODES)
    finding = story.finding("fan/x", Severity.FATAL, seen_at=story.now - 7 * DAY_S)
    later = replace(finding, count=2, last_seen=story.now + 30 * DAY_S)
    for item in (later, finding, later, finding):
        story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(item,), active=(item,)))
    assert [name for _, name, _ in story.isolated] == ["n1"]
    story.submit(Tick(at=story.now + 31 * DAY_S))
    assert len(story.isolated) == 1
    assert len(story.open_actions("cordon")) == 1, "which the scheduler never answered, so it is asked again"


def test_a_node_that_speaks_of_another_is_not_heard() -> None:
    story = Watched(stories.settings(budget=TIGHT), NODES)
    mine = story.finding("fan/slow", Severity.WARNING, node="n2")
    lie = replace(mine, severity=Severity.FATAL, count=9)
    invented = replace(lie, id="f" * 20)
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(lie, invented), active=(invented,)))
    assert story.state.findings[mine.id] == mine
    assert invented.id not in story.state.findings
    assert not story.state.held
    assert story.kinds().count("finding_refused") == 3
    stolen = replace(lie, node="n1")
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(stolen,)))
    assert story.state.findings[mine.id] == mine
    assert not story.state.held


def test_an_outcome_counts_once_however_often_it_comes() -> None:
    story = Watched(stories.settings(budget=TIGHT), NODES)
    story.finding("fan/slow", Severity.ERROR)
    (action,) = story.open_actions("cordon")
    for result in (ActionResult.DONE, ActionResult.REFUSED, ActionResult.FAILED):
        story.submit(ActionEnded(at=story.now, action=action.id, outcome=ActionOutcome(result)))
    assert story.actions[action.id].state is ActionState.SUCCEEDED
    assert story.actions[action.id].attempts == 1
    assert story.state.held == {"n1"}

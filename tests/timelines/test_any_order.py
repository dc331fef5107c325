"""Whatever arrives, in whatever order: no crash, no invariant broken (the story checks them after every input)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from remediator.model.scheduler_hold import ActionResult, HoldOwner
from tests.timelines.timeline import Story
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderKind, OrderState

NODES = st.sampled_from(["n1", "n2", "n3", "n4"])
KINDS = st.sampled_from(
    ["xid/79", "xid/63", "row_remap/pending", "row_remap/failure", "nvml/hang", "fan/slow", "odd/thing"]
)
ORDERS = st.sampled_from([*(kind.value for kind in OrderKind)])


class Anything(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.raised: list[Finding] = []

    @rule(kind=KINDS, severity=st.sampled_from(Severity), node=NODES)
    def finding(self, kind: str, severity: Severity, node: str) -> None:
        self.raised.append(self.story.finding(kind, severity, node))

    @rule(which=st.integers(0, 50))
    def clear(self, which: int) -> None:
        if self.raised:
            self.story.clear(self.raised[which % len(self.raised)])

    @rule(seconds=st.sampled_from([0.1, 5.0, 200.0, 4000.0, 90_000.0]))
    def time(self, seconds: float) -> None:
        self.story.after(seconds)

    @rule(node=NODES, there=st.booleans())
    def placement(self, node: str, there: bool) -> None:  # noqa: FBT001 - a drawn value
        self.story.job("j1", node) if there else self.story.no_job(node)

    @rule(node=NODES, verb=st.sampled_from(["cordon", "resume"]), result=st.sampled_from(ActionResult))
    def outcome(self, node: str, verb: str, result: ActionResult) -> None:
        self.story.scheduler_answers(verb, result, node)

    @rule(verb=ORDERS, state=st.sampled_from(OrderState))
    def order(self, verb: str, state: OrderState) -> None:
        self.story.orders_end(verb, state)

    @rule(
        node=NODES,
        drained=st.booleans(),
        owner=st.sampled_from(HoldOwner),
        schedulable=st.sampled_from([True, False, None]),
    )
    def hold(self, node: str, drained: bool, owner: HoldOwner, schedulable: bool | None) -> None:  # noqa: FBT001 - drawn values
        self.story.hold(node, drained=drained, owner=owner, schedulable=schedulable)


Anything.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnything = Anything.TestCase

"""A timeline that is audited as it goes: what may never happen, whatever the inputs are.

The auditor keeps books of its own, from the inputs alone, and its figures are written down here and in the test, not read
from the code: a limit that the code doubles is one that it breaks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remediator.decisions.hold_incidents import RULE
from remediator.model.journal_records import BREAKER, Action, ActionState, Answer, IncidentState
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import (
    ActionEnded,
    AnyInput,
    BreakerReset,
    HoldsObserved,
    ManualCordon,
    ManualCordonKind,
    NodeCommand,
    NodeCommandKind,
    OrderAnswered,
    Tick,
    TopologyObserved,
)
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionResult, HoldOwner
from remediator.state.cluster_state import ISOLATION
from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import OrderState

CHANGING = {"resume", "evict", "reset_gpu", "reboot", "run_preflight"}
REPAIRS = {"reset_gpu", "reboot"}
GIVEN_UP = {ActionState.CANCELLED, ActionState.EXPIRED}
OUT = {NodeState.DRAINING, NodeState.QUARANTINED, NodeState.RESETTING, NodeState.TESTING, NodeState.REPLACING}
HOUR_S, DAY_S = 3600.0, 86_400.0
TRIAL_S = 3600.0
WITHDRAWN_S = 60.0


class Limits(NamedTuple):
    """What the budget under test allows, written once more."""

    level: int = 3
    per_hour: int = 3
    gap_s: float = 120.0
    per_job_hour: int = 1
    per_job_day: int = 3
    breaker_at: int = 10**9


class Watched(Story):
    """A cluster of two racks, two nodes to a switch, every other one in a partition."""

    def __init__(self, rules: Any, nodes: int, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.limits = limits
        self.isolated: list[tuple[float, str, tuple[str, ...]]] = []
        self.returned = self.taken_over = 0
        self.out: set[str] = set()  # taken out by us and, as far as anybody told, still out because of us
        self.held_before: set[str] = set()
        self.shown_free: set[str] = set()  # of those the scheduler had, what it last showed in service
        self.placed: dict[str, float] = {}  # since when the scheduler has our hold, by its own word
        self.tested: set[str] = set()  # passed a preflight, and nothing was done to it since
        self.operators: set[str] = set()  # held by an operator in the scheduler
        self.kept_off: dict[str, float] = {}  # hands off by word, until when
        self.kept_since: dict[str, float] = {}
        self.retired: set[str] = set()
        self.asked: dict[
            str, tuple[ManualCordonKind, str]
        ] = {}  # what a person last had the controller do in the scheduler, and who
        self.given_up: dict[str, float] = {}  # held by us when a person had it uncordoned, and since when
        self.by_hand = 0  # of what people asked for, carried out
        self.trial: dict[str, float] = {}
        super().__init__(rules, nodes)
        half = nodes // 2
        places = {
            f"n{n}": NodeLocation(rack=f"r{n // half}", switch=f"s{n // 2}", partitions=("p",) * (n % 2))
            for n in range(1, nodes + 1)
        }
        self.submit(TopologyObserved(at=self.now, source="file", places=places))

    def _tell(self, item: AnyInput) -> None:
        breaker_was_open = self.state.incident_of(BREAKER) is not None and not isinstance(item, BreakerReset)
        busy = self._busy()
        self.held_before = {name for name, node in self.state.nodes.items() if node.held}
        states = {name: node.state for name, node in self.state.nodes.items()}
        actions, seen = dict(self.actions), len(self.occurrences)
        self._hear(item)
        super()._tell(item)
        isolated = [o for o in self.occurrences[seen:] if o.kind == ISOLATION]
        for each in isolated:
            self.out.add(each.node)
            self.placed.pop(each.node, None)
            self.tested.discard(each.node)
        self._check_out(item)
        for each in isolated:
            assert not breaker_was_open, "isolated while the breaker was open"
            self._check_limits(each.at, each.node, each.jobs, busy & self._busy())
            self.isolated.append((each.at, each.node, each.jobs))
        self._check_actions(actions)
        self._check_hands()
        self._check_life(item, states)

    def _hear(self, item: AnyInput) -> None:
        """What an input says of whose hold stands where, and of what a node has proved."""
        if isinstance(item, HoldsObserved):
            for hold in item.holds:
                asked = any(a.node == hold.node for a in self.open_actions("cordon"))
                if hold.schedulable:
                    self.operators.discard(hold.node)
                elif hold.owner is HoldOwner.OPERATOR and not asked:  # otherwise the scheduler's answer will say it
                    self.operators.add(hold.node)
                    self.taken_over += hold.node in self.out
                elif hold.owner is HoldOwner.US:
                    self.placed.setdefault(
                        hold.node, item.at
                    )  # by the scheduler's own word, whatever else is asked of it
        elif isinstance(item, NodeCommand | ManualCordon):
            self._hear_word(item)
        elif isinstance(item, ActionEnded | OrderAnswered):
            self._hear_outcome(item)
        for node in [node for node, until in self.kept_off.items() if item.at >= until]:
            del self.kept_off[node]
        self.kept_since = {node: self.kept_since.get(node, item.at) for node in self.kept_off}

    def _hear_word(self, item: NodeCommand | ManualCordon) -> None:
        if isinstance(item, ManualCordon):
            if item.node in self.retired:
                return
            self.asked[item.node] = (item.word, item.actor)
            if item.word is ManualCordonKind.UNCORDON and item.node in self.held_before:
                self.given_up.setdefault(item.node, item.at)
        elif item.word is NodeCommandKind.HOLD and item.node not in self.retired:
            self.kept_off[item.node] = item.until or float("inf")
        elif item.word is NodeCommandKind.RELEASE:
            self.kept_off.pop(item.node, None)
        elif item.word is NodeCommandKind.RETIRE:
            self.retired.add(item.node)
            self.kept_off.pop(item.node, None)
        elif item.word is NodeCommandKind.UNRETIRE:
            self.retired.discard(item.node)

    def _hear_outcome(self, item: ActionEnded | OrderAnswered) -> None:
        action = self.state.actions.get(item.action if isinstance(item, ActionEnded) else item.update.id)
        if action is None or action.state.final:
            return
        if isinstance(item, OrderAnswered):
            if action.verb == "run_preflight" and item.update.state is OrderState.SUCCEEDED:
                self.tested.add(action.node)
        elif action.verb == "cordon" and item.outcome.result in (ActionResult.DONE, ActionResult.ALREADY):
            self.placed[action.node] = item.at
            self.shown_free.discard(action.node)
            self.operators.discard(action.node)  # the scheduler would not have taken ours
        elif action.verb == "cordon" and item.outcome.result is ActionResult.REFUSED:
            self.operators.add(action.node)
        elif item.outcome.result in (ActionResult.DONE, ActionResult.ALREADY) and not action.incident:
            self.by_hand += 1
            if action.verb == "uncordon_by_hand":
                self.operators.discard(action.node)

    def _busy(self) -> set[str]:
        acting = {i.node for i in self.state.incidents.values() if i.state is IncidentState.ACTING}
        return acting & {name for name, node in self.state.nodes.items() if node.held}

    def _check_limits(self, at: float, node: str, jobs: tuple[str, ...], busy: set[str]) -> None:
        limits, times = self.limits, [t for t, _, _ in self.isolated]
        assert not times or at - times[-1] >= limits.gap_s, "too soon after the last"
        assert sum(at - t < HOUR_S for t in times) < limits.per_hour, "too many in an hour"
        assert len(self.out) <= limits.level, f"too many at once: {self.out}"
        for job in jobs:
            from_job = [t for t, _, lost in self.isolated if job in lost]
            assert sum(at - t < HOUR_S for t in from_job) < limits.per_job_hour
            assert sum(at - t < DAY_S for t in from_job) < limits.per_job_day
        here = self.state.nodes[node].places
        near = [n for n in busy - {node} if self._near(self.state.nodes[n].places, here)]
        assert not near, f"an action was open at {near}"
        for wide in [
            w for w in self.state.wide() if w.rule in ("common-cause", "silence")
        ]:  # a slow cause is only told of
            assert node not in wide.members or wide.opened_at >= at, "isolated although it shares a cause"
        assert len(self.out) < limits.breaker_at or self.state.incident_of(BREAKER), "the breaker should be open"

    @staticmethod
    def _near(one: NodeLocation, other: NodeLocation) -> bool:
        return one.rack == other.rack or one.switch == other.switch

    def _check_actions(self, before: dict[str, Action]) -> None:
        for action in self.actions.values():
            was = before.get(action.id)
            assert was is None or not was.state.final or was == action, f"{action.id} ended twice"
            if was is None:
                self._check_planned(action)
            elif action.verb == "resume" and not was.state.final and action.state in GIVEN_UP:
                self.placed.pop(action.node, None)  # it may be carried out all the same

    def _check_planned(self, action: Action) -> None:
        if not action.incident:
            self._check_by_hand(action)
            return
        decision = self.decisions[action.decision]
        assert decision.policy, f"{decision.id} names no policy"
        assert decision.findings or decision.policy == "built-in", f"{decision.id} names no evidence"
        if action.verb in REPAIRS:
            self.tested.discard(action.node)
        elif action.verb == "cordon":
            again = (
                ".again" in action.id and action.node in self.held_before
            )  # a hold that is there is asked for once more
            assert again or decision.answer is Answer.ACT or decision.rule == RULE
            assert action.node in self.out, "taken out without being counted"
        elif action.verb == "resume":
            assert action.node in self.tested, f"{action.node} comes back without a passed preflight"
            bad = [f.kind for f in self.state.active_on(action.node) if f.severity.rank >= Severity.ERROR.rank]
            assert not bad, f"{action.node} comes back with {bad}"

    def _check_by_hand(self, action: Action) -> None:
        """Nobody's hand is lent who did not ask: a word of a person's, about this node, names them in the reason."""
        word, actor = self.asked[action.node]
        assert action.verb == f"{word.value}_by_hand"
        assert actor in action.reason
        written = [e for e in self.audit if e.kind == "by_hand" and e.node == action.node]
        assert written[-1].actor == actor

    def _check_out(self, item: AnyInput) -> None:
        """A node leaves our books only because somebody said something that means it."""
        held = {node.node for node in self.state.nodes.values() if node.held}
        shown = {h.node for h in item.holds if h.owner is HoldOwner.US} if isinstance(item, HoldsObserved) else set()
        assert held <= self.out | shown, f"held, and never counted: {held - self.out}"
        self.out |= held  # our hold stood there, and we had forgotten it
        for node in self.out - held:
            assert self._let_go(node, item), f"{node} is not held any more, after {item}"
            self.out.discard(node)
            self.placed.pop(node, None)
            self.given_up.pop(node, None)
        for hold in item.holds if isinstance(item, HoldsObserved) else ():
            if hold.schedulable and self.placed.get(hold.node, item.at) < item.at:
                self.shown_free.add(hold.node)  # somebody gave it back, whatever our books say
            elif hold.schedulable is False:
                self.shown_free.discard(hold.node)

    def _let_go(self, node: str, item: AnyInput) -> bool:
        if isinstance(item, ActionEnded):
            action = self.actions[item.action]
            done = (ActionResult.DONE, ActionResult.ALREADY)
            good = {"resume": done, "cordon": (ActionResult.REFUSED, ActionResult.UNKNOWN), "uncordon_by_hand": done}
            self.returned += action.verb == "resume"
            return action.node == node and item.outcome.result in good.get(action.verb, ())
        released = isinstance(item, NodeCommand) and item.node == node and item.word is NodeCommandKind.RELEASE
        if (released or isinstance(item, Tick)) and (node not in self.placed or node in self.shown_free):
            return True  # hands off is over, and our cordon was withdrawn before the scheduler had it, or lifted by somebody
        if isinstance(item, NodeCommand):
            return item.node == node and item.word is NodeCommandKind.RETIRE
        if not isinstance(item, HoldsObserved):
            return False
        said = [hold for hold in item.holds if hold.node == node]
        before = item.at - WITHDRAWN_S  # hands off since then, and the scheduler never had our cordon
        since = min(self.kept_since.get(node, item.at), self.given_up.get(node, item.at))
        withdrawn = node not in self.placed and since <= before
        lifted = any(hold.schedulable for hold in said) and (withdrawn or self.placed.get(node, item.at) < item.at)
        return lifted or any(hold.owner is HoldOwner.OPERATOR for hold in said)

    def _check_hands(self) -> None:
        """On a node that is theirs nothing of ours may change anything, planned now or long ago."""
        lifting = {a.node for a in self.state.actions.values() if a.verb == "uncordon_by_hand"}
        theirs = self.operators | self.kept_off.keys() | self.retired | (lifting & self.given_up.keys())
        for action in self.state.actions.values():
            if action.node in theirs and not action.state.final:
                assert action.verb not in CHANGING, f"{action.id}: {action.node} is not ours to change"

    def _check_life(self, item: AnyInput, before: dict[str, NodeState]) -> None:
        for name, node in self.state.nodes.items():
            was = before.get(name, node.state)
            if node.state is was:
                continue
            if node.state is NodeState.PROBATION:
                self.trial[name] = item.at
                assert was not in OUT or name not in self.out, "on probation, and still out"
            if node.state is NodeState.HEALTHY:
                assert was in (NodeState.PROBATION, NodeState.SUSPECT), f"{was} became healthy"
                assert item.at - self.trial.pop(name, -TRIAL_S) >= TRIAL_S, "healthy before its trial was over"
            assert was is not NodeState.RETIRED or isinstance(item, NodeCommand), "came back from retirement by itself"

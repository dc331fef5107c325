"""A simulated cluster that carries out the pipeline's plans in virtual time.

Used to test playbooks on scenarios and on recorded history. Pure: the same inputs, settings and scenario give the same
decisions.
"""

from __future__ import annotations

import heapq
import itertools

import msgspec

from remediator.decisions.decision_settings import DecisionSettings
from remediator.model.journal_records import Action, Decision, Incident, IncidentState, JobRef
from remediator.model.occurrence import Occurrence
from remediator.model.pipeline_inputs import (
    ActionEnded,
    AnyInput,
    FindingsReported,
    HoldsObserved,
    OrderAnswered,
    PlacementChanged,
    Tick,
)
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.pipeline import apply_input
from remediator.state.cluster_state import ClusterState
from vocabulary.order import TRAINER_ORDERS, OrderKind, OrderState, OrderUpdate

IDLE_STEP_S = 3600.0  # longest step of time when nothing is due
TICK_S = 60.0  # interval of clock ticks while something happens
GOOD = "done"
NEVER = "never"

_VERBS = {
    **{kind.value: "notify_trainer" for kind in TRAINER_ORDERS},
    "run_preflight": "preflight",
    "resume": "return_to_service",
}
_SECONDS = {"notify_trainer": 10.0, "reset_gpu": 60.0, "reboot": 300.0, "preflight": 120.0}
_PROVING = {OrderKind.RESET_GPU.value, OrderKind.REBOOT.value, OrderKind.RUN_PREFLIGHT.value}


class AnswerScript(msgspec.Struct, frozen=True, kw_only=True):
    """How the cluster answers: ``done`` (the default), ``failed``, ``refused`` or ``never``, per verb of a playbook.

    In a scenario, a notified job leaves, and a passed test clears the node's findings; in recorded history, the record
    says both.
    """

    answers: dict[str, str] = {}
    invented: bool = True


class SimulatedCluster:
    """Feeds the pipeline, answers its actions, and keeps every decision."""

    def __init__(self, settings: DecisionSettings, world: AnswerScript) -> None:
        self.settings = settings
        self.state = ClusterState()
        self.now = 0.0
        self.decisions: dict[str, Decision] = {}
        self.incidents: dict[str, Incident] = {}
        self.occurrences: list[Occurrence] = []
        self.isolated_s = 0.0  # summed over nodes
        self._world = world
        self._ticked_at = 0.0
        self._agenda: list[tuple[float, int, AnyInput]] = []
        self._order = itertools.count()
        self._answered: set[str] = set()

    def at(self, item: AnyInput) -> None:
        """Schedule an input at its own time."""
        heapq.heappush(self._agenda, (item.at, next(self._order), item))

    def run(self, until: float) -> None:
        """Advance time to `until`: everything due happens in order, and deadlines are exact."""
        while True:
            due = self._agenda[0][0] if self._agenda else until
            deadline = self._next_deadline()
            self._to(max(min(due, until, deadline), self.now), tick=deadline <= min(due, until))
            while self._agenda and self._agenda[0][0] <= self.now:
                self.submit(heapq.heappop(self._agenda)[2])
            if self.now >= until and not (self._agenda and self._agenda[0][0] <= until):
                return

    def submit(self, item: AnyInput) -> None:
        """Apply one input, keep its changes, and schedule the answers to the actions it planned."""
        self._count_isolated(item.at)
        apply_input(self.state, item, self.settings)
        changes = self.state.take_changes()
        self.decisions |= changes.decisions
        self.incidents |= changes.incidents
        self.occurrences += changes.occurrences
        for action in changes.actions.values():
            if action.id not in self._answered and not action.state.final:
                self._answered.add(action.id)
                self._answer(action, item.at)
        if isinstance(item, PlacementChanged) and self.state.nodes[item.node].held:
            self._observe(item.node, item.at, schedulable=False)

    def _to(self, now: float, *, tick: bool) -> None:
        if tick or now - self._ticked_at >= TICK_S:
            self._ticked_at = now
            self.submit(Tick(at=now))
        self._count_isolated(now)

    def _count_isolated(self, now: float) -> None:
        self.isolated_s += max(0.0, now - self.now) * len(self.state.held)
        self.now = max(self.now, now)

    def _next_deadline(self) -> float:
        """Return the next time at which something happens without an input."""
        times = [self._ticked_at + IDLE_STEP_S]
        for incident in self.state.incidents.values():
            if incident.state is not IncidentState.ACTING:
                continue
            for run in itertools.chain.from_iterable(incident.plan):
                times += [t for t in (run.deadline, run.not_before) if t is not None and t > self.now]
        return min(times)

    def _answer(self, action: Action, now: float) -> None:
        verb = _VERBS.get(action.verb, action.verb)
        word = self._world.answers.get(verb, GOOD)
        if word == NEVER:
            return
        at = now + _SECONDS.get(verb, 1.0)
        if action.order is not None:
            state = OrderState.SUCCEEDED if word == GOOD else OrderState(word)
            if word == GOOD and self._world.invented:
                self._what_follows(action, at)
            update = OrderUpdate(id=action.id, state=state, at=at, detail=word)
            self.at(OrderAnswered(at=at, node=action.node, update=update))
            return
        if word == GOOD and verb in ("cordon", "return_to_service"):
            self._observe(action.node, at, schedulable=verb == "return_to_service")
        self.at(ActionEnded(at=at, action=action.id, outcome=ActionOutcome(ActionResult(word), word)))

    def _what_follows(self, action: Action, at: float) -> None:
        if action.verb in {kind.value for kind in TRAINER_ORDERS} and action.order is not None:
            left = JobRef(action.order.job, action.order.attempt or 0)
            jobs = tuple(ref for ref in self.state.nodes[action.node].jobs if ref != left)
            self.at(PlacementChanged(at=at, node=action.node, jobs=jobs))
        if action.verb in _PROVING:
            cleared = tuple(f.cleared(at, action.verb) for f in self.state.active_on(action.node))
            self.at(FindingsReported(at=at, node=action.node, boot_id="", changes=cleared))

    def _observe(self, node: str, at: float, *, schedulable: bool) -> None:
        idle = not self.state.nodes[node].jobs
        owner = HoldOwner.NOBODY if schedulable else HoldOwner.US
        hold = SchedulerNodeState(node=node, schedulable=schedulable, drained=idle and not schedulable, owner=owner)
        self.at(HoldsObserved(at=at, holds=(hold,)))

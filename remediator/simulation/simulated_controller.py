"""The real pipeline as an actor: it gets what a cluster would report, and its plans run on the simulated nodes.

Each node's ranks are reported as an attempt of their own, so that an order to a job is one order and not one per node
of a thousand; the job still acts as a whole. Guards count by the job's name, which this does not change.
"""

from __future__ import annotations

import itertools
from functools import partial

from remediator.decisions.approval import list_awaited_approvals
from remediator.decisions.decision_settings import DecisionSettings
from remediator.model.journal_records import BREAKER, Action, Incident, IncidentState, JobRef
from remediator.model.pipeline_inputs import (
    ActionEnded,
    AnyInput,
    BreakerReset,
    FindingsReported,
    HoldsObserved,
    OrderAnswered,
    PlacementChanged,
    StepApproved,
    Tick,
)
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.pipeline import apply_input
from remediator.simulation.failure_causes import FailureCause
from remediator.simulation.simulated_fleet import SimulatedNode
from remediator.simulation.simulated_world import HOUR_S, SimulatedWorld
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.order import TRAINER_ORDERS, OrderKind, OrderState, OrderUpdate

EPOCH_S = 1_000_000_000.0  # the pipeline's time at the simulation's 0
TICK_S = 600.0
SCHEDULER_S, RESET_S = 2.0, 60.0
_TRAINER = {kind.value for kind in TRAINER_ORDERS}


class SimulatedController:
    """Feeds the pipeline and answers for the cluster.

    Args:
        world: the fleet.
        settings: policy, mode and budget.
        retest: tests also find hidden faults, at the fleet's rates; otherwise only obvious ones.
    """

    def __init__(self, world: SimulatedWorld, settings: DecisionSettings, *, retest: bool) -> None:
        self.state = ClusterState()
        self.removed: list[tuple[SimulatedNode, float, float | None]] = []
        self.repaired: list[tuple[SimulatedNode, float]] = []
        self.tests_failed: list[tuple[SimulatedNode, float]] = []
        self.seen: list[tuple[SimulatedNode, FailureCause, float]] = []
        self._world, self._settings, self._retest = world, settings, retest
        self._nodes = {node.name: node for node in world.nodes}
        self._numbers = itertools.count()
        self._answered: set[str] = set()
        self._due: set[float] = set()
        self._asked: set[str] = set()

    @property
    def now(self) -> float:
        """The time in the pipeline's seconds."""
        return EPOCH_S + self._world.agenda.now

    def begin(self) -> None:
        """Report every node with its work."""
        for node in self._world.nodes:
            self.submit(FindingsReported(at=self.now, node=node.name, boot_id="", active=()))
            self._place(node)
        in_service = tuple(SchedulerNodeState(node=node.name, schedulable=True) for node in self._world.nodes)
        self.submit(HoldsObserved(at=self.now, holds=in_service))
        self._tick_on()

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Never: it cannot."""
        del node, lasting
        return False

    def found(self, node: SimulatedNode, cause: FailureCause) -> None:
        """Report a finding of the node.

        How it is detected is a matter of `healthd` and `detection`, which have their own benches.
        """
        if not node.in_service or (cause.check == "straggler" and not node.slow):
            return
        if node.job is not None:
            self._place(node)
        number = str(next(self._numbers))
        finding = Finding(
            id=finding_id(node.name, cause.check, cause.code, cause.component, number),
            node=node.name,
            check=cause.check,
            code=cause.code,
            component=cause.component,
            severity=cause.severity,
            summary=f"{cause.check}/{cause.code}",
            first_seen=self.now,
            last_seen=self.now,
            origin=number,
            active=cause.severity is not Severity.INFO,
        )
        self.seen.append((node, cause, self._world.agenda.now))
        self.submit(FindingsReported(at=self.now, node=node.name, boot_id="", changes=(finding,)))

    def left(self, node: SimulatedNode) -> None:
        """No work is left on a cordoned node."""
        self._place(node)
        self._hold(node)

    def joined(self, node: SimulatedNode) -> None:
        """A free node got work."""
        self._place(node)

    def held(self, node: SimulatedNode) -> None:
        """Operators isolated it in the scheduler."""
        self._hold(node)

    def given_back(self, node: SimulatedNode) -> None:
        """It is repaired, and the scheduler may use it again."""
        self._clear(node, "repaired")
        self.repaired.append((node, self._world.agenda.now))
        self._end_removal(node)
        hold = SchedulerNodeState(node=node.name, schedulable=True, drained=False, owner=HoldOwner.NOBODY)
        self.submit(HoldsObserved(at=self.now, holds=(hold,)))

    def submit(self, item: AnyInput) -> None:
        """Apply one input, and run the actions it planned."""
        apply_input(self.state, item, self._settings)
        changes = self.state.take_changes()
        for action in changes.actions.values():
            if action.id not in self._answered and not action.state.final:
                self._answered.add(action.id)
                self._perform(action)
        for incident in changes.incidents.values():
            self._follow(incident)

    def _perform(self, action: Action) -> None:
        """Answer an action later: the pipeline is never called from within itself."""
        node = self._nodes.get(action.node)  # None: about the cluster, only a notification
        after_s = SCHEDULER_S
        if action.verb == OrderKind.RUN_PREFLIGHT.value:
            after_s = 60 * self._world.p.test_minutes
        elif action.verb in (OrderKind.RESET_GPU.value, OrderKind.REBOOT.value):
            after_s = RESET_S if action.verb == OrderKind.RESET_GPU.value else 60 * self._world.p.reboot_minutes
        self._world.agenda.after(after_s, partial(self._done, action, node))

    def _done(self, action: Action, node: SimulatedNode | None) -> None:
        if node is None:
            self.submit(ActionEnded(at=self.now, action=action.id, outcome=ActionOutcome(ActionResult.DONE)))
        elif action.verb in _TRAINER:
            self._tell_trainer(action, node)
        elif action.order is not None:
            self._answer(action, done=self._node_does(action.verb, node))
        else:
            self._scheduler_does(action.verb, node)
            self.submit(ActionEnded(at=self.now, action=action.id, outcome=ActionOutcome(ActionResult.DONE)))

    def _scheduler_does(self, verb: str, node: SimulatedNode) -> None:
        if verb == "cordon" and node.in_service:
            self.removed.append((node, self._world.agenda.now, None))
            self._world.take_out(node)
            self._hold(node)
        elif verb == "resume":
            self._end_removal(node)
            self._world.bring_back(node)

    def _tell_trainer(self, action: Action, node: SimulatedNode) -> None:
        job = node.job
        then = partial(self._answer, action, done=True)
        if job is None or action.order is None or job.name != action.order.job:
            then()
        elif action.verb == OrderKind.ABORT.value:
            if job.phase == "running":
                self._world.jobs.stop(job)
            else:
                self._world.jobs.release(job)
            then()
        else:
            self._world.jobs.save_and_leave(job, then)

    def _node_does(self, verb: str, node: SimulatedNode) -> bool:
        """Carry out an order. Returns whether it succeeded."""
        if verb == OrderKind.RUN_PREFLIGHT.value:
            return self._passes(node)
        if verb in (OrderKind.RESET_GPU.value, OrderKind.REBOOT.value):
            self._world.heal(node, lasting=False)
            return not node.broken
        return True

    def _passes(self, node: SimulatedNode) -> bool:
        p, rng = self._world.p, self._world.rng
        hides = node.slow or (self._retest and (node.latent or node.lemon))
        share = p.test_finds_share if hides else p.test_false_share * self._retest
        if node.broken or rng.random() < share:
            self.tests_failed.append((node, self._world.agenda.now))
            return False
        self._world.heal(node, lasting=False)
        self._clear(node, "preflight")
        return True

    def _answer(self, action: Action, *, done: bool) -> None:
        state = OrderState.SUCCEEDED if done else OrderState.FAILED
        update = OrderUpdate(id=action.id, state=state, at=self.now)
        self.submit(OrderAnswered(at=self.now, node=action.node, update=update))

    def _clear(self, node: SimulatedNode, by: str) -> None:
        over = tuple(finding.cleared(self.now, by) for finding in self.state.active_on(node.name))
        self.submit(FindingsReported(at=self.now, node=node.name, boot_id="", changes=over))

    def _place(self, node: SimulatedNode) -> None:
        job = node.job
        name = job.name if job is not None and job.phase != "idle" else ""
        if node.reserved and node.in_service:
            name = f"reserved-{node.index}"  # or the pipeline would count it as a spare
        jobs = (JobRef(name, node.index),) if name else ()
        if self.state.nodes[node.name].jobs != jobs:
            self.submit(PlacementChanged(at=self.now, node=node.name, jobs=jobs))

    def _hold(self, node: SimulatedNode) -> None:
        ours = self.state.nodes[node.name].held
        owner = HoldOwner.US if ours else HoldOwner.OPERATOR
        busy = node.job is not None and node.job.phase != "idle"
        hold = SchedulerNodeState(node=node.name, schedulable=False, drained=not busy, owner=owner)
        self.submit(HoldsObserved(at=self.now, holds=(hold,)))

    def _end_removal(self, node: SimulatedNode) -> None:
        for index in range(len(self.removed) - 1, -1, -1):
            if self.removed[index][0] is node:
                self.removed[index] = (*self.removed[index][:2], self._world.agenda.now)
                return

    def _follow(self, incident: Incident) -> None:
        """Meet deadlines to the second; operators approve what awaits them."""
        for each in list_awaited_approvals(incident):
            if each.id not in self._asked:
                self._asked.add(each.id)
                agree = partial(self._agree, incident.id, each.id)
                self._world.agenda.after(self._world.p.people_find_h * HOUR_S, agree)
        if incident.state is IncidentState.ACTING:
            for run in itertools.chain.from_iterable(incident.plan):
                for at in (run.deadline, run.not_before):
                    if at is not None and at > self.now and at not in self._due:
                        self._due.add(at)
                        self._world.agenda.at(at - EPOCH_S, partial(self._deadline, at))
        elif incident.state is IncidentState.WAITING and incident.node == BREAKER:
            self._world.agenda.after(self._world.p.people_find_h * HOUR_S, self._reset_breaker)
        elif incident.state is IncidentState.WAITING and not incident.wide:
            node = self._nodes[incident.node]
            if not node.in_service and not node.by_people:
                self._world.repair(node)

    def _agree(self, incident: str, what: str) -> None:
        self.submit(StepApproved(at=self.now, incident=incident, what=what, actor="people"))

    def _deadline(self, at: float) -> None:
        self._due.discard(at)
        self.submit(Tick(at=self.now))

    def _reset_breaker(self) -> None:
        if self.state.incident_of(BREAKER) is not None:
            self.submit(BreakerReset(at=self.now, actor="people", text="looked at"))

    def _tick_on(self) -> None:
        self.submit(Tick(at=self.now))
        self._world.agenda.after(TICK_S, self._tick_on)

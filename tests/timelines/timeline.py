"""Timelines: tell the pipeline what happened, second by second, and look at what it decided.

Time moves only by `after`. Every input goes through the shipped policy unless told otherwise; invariants that must hold
after every single input are checked there.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import playbooks
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import level_max, level_only_budget
from remediator.model.journal_records import Action, AuditEvent, Decision, Incident, JobRef
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
from remediator.model.plan_steps import Mode, Verb
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.overrides.manual_cordon import BY_HAND
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import load_policy
from remediator.state.cluster_state import ISOLATION, ClusterState
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind
from vocabulary.order import OrderState, OrderUpdate

SHIPPED = load_policy([Path(playbooks.__path__[0]) / "default.yaml"])
GPU = Component(ComponentKind.GPU, "GPU-3b", "0000:3b:00.0", 0)
TOLD_AT_ONCE = {Verb.ALERT.value, Verb.TICKET.value, Verb.COLLECT_EVIDENCE.value}
START = 1_700_000_000.0


def settings(**changes: Any) -> DecisionSettings:
    base: dict[str, Any] = {
        "policy": SHIPPED,
        "mode": Mode.ACT,
        "budget": level_only_budget(2),
        "probation_s": 3600.0,
    }
    return DecisionSettings(**(base | changes))


class Story:
    """A cluster's timeline. Reads like one: `story.finding(...)`, `story.after(3)`, `story.order_done(...)`."""

    def __init__(self, rules: DecisionSettings | None = None, nodes: int = 4) -> None:
        self.rules = rules or settings()
        self.state = ClusterState()
        self.now = START
        self.inputs: list[AnyInput] = []
        self.audit: list[AuditEvent] = []
        self.decisions: dict[str, Decision] = {}
        self.actions: dict[str, Action] = {}
        self.incidents: dict[str, Incident] = {}
        self.occurrences: list[Occurrence] = []
        self.check_level = True
        self.shown: set[str] = set()  # held because the scheduler showed a hold of ours that we did not know of
        self._origins = itertools.count()
        for n in range(1, nodes + 1):
            self.submit(FindingsReported(at=self.now, node=f"n{n}", boot_id="b", active=()))
        in_service = tuple(SchedulerNodeState(node=f"n{n}", schedulable=True) for n in range(1, nodes + 1))
        self.submit(HoldsObserved(at=self.now, holds=in_service))

    def submit(self, item: AnyInput) -> None:
        self._tell(item)
        for action in [a for a in self.state.actions.values() if a.verb in TOLD_AT_ONCE and not a.state.final]:
            self._tell(ActionEnded(at=self.now, action=action.id, outcome=ActionOutcome(ActionResult.DONE, "told")))

    def _tell(self, item: AnyInput) -> None:
        self.inputs.append(item)
        before = set(self.state.held)
        apply_input(self.state, item, self.rules)
        changes = self.state.take_changes()
        self.audit += changes.audit
        self.decisions |= changes.decisions
        self.actions |= changes.actions
        self.incidents |= changes.incidents
        self.occurrences += changes.occurrences
        isolated = {o.node for o in changes.occurrences if o.kind == ISOLATION}
        self.shown = (self.shown | (self.state.held - before - isolated)) & self.state.held
        self.check_invariants()

    def check_invariants(self) -> None:
        held = [n for n in self.state.nodes.values() if n.held and n.node not in self.shown]
        assert not self.check_level or len(held) <= level_max(self.rules.budget, len(self.state.index.in_cluster)), (
            "more nodes isolated than the budget allows"
        )
        for action in self.actions.values():
            by_hand = action.verb in BY_HAND and not action.incident  # a person's word stands in for a decision
            assert by_hand or action.decision in self.decisions, f"{action.id} has no decision row"
        for node in self.state.nodes:
            assert sum(i.node == node for i in self.state.incidents.values()) <= 1
            assert self.state._critical_counts[node] == len(self.state.critical_findings_on(node))

    def after(self, seconds: float) -> Story:
        self.now += seconds
        self.submit(Tick(at=self.now))
        return self

    def finding(
        self, kind: str, severity: Severity, node: str = "n1", component: Component = GPU, **more: Any
    ) -> Finding:
        check, code = kind.split("/")
        origin = f"b:{next(self._origins)}"
        seen_at = more.pop("seen_at", self.now)
        finding = Finding(
            id=finding_id(node, check, code, component, origin),
            node=node,
            check=check,
            code=code,
            component=component,
            severity=severity,
            summary=f"{kind} was seen",
            first_seen=seen_at,
            last_seen=seen_at,
            origin=origin,
            active=severity is not Severity.INFO,
            **more,
        )
        self.submit(FindingsReported(at=self.now, node=node, boot_id="b", changes=(finding,)))
        return finding

    def clear(self, finding: Finding, by: str = "proof") -> None:
        cleared = finding.cleared(self.now, by)
        self.submit(FindingsReported(at=self.now, node=finding.node, boot_id="b", changes=(cleared,)))

    def job(self, name: str, *nodes: str, attempt: int = 1) -> None:
        for node in nodes:
            self.submit(PlacementChanged(at=self.now, node=node, jobs=(JobRef(name, attempt),)))

    def no_job(self, *nodes: str) -> None:
        for node in nodes:
            self.submit(PlacementChanged(at=self.now, node=node, jobs=()))

    def open_actions(self, verb: str) -> list[Action]:
        return [a for a in self.state.actions.values() if a.verb == verb and not a.state.final]

    def scheduler_answers(self, verb: str, result: ActionResult = ActionResult.DONE, node: str = "n1") -> None:
        for action in self.open_actions(verb):
            if action.node == node:
                self.submit(ActionEnded(at=self.now, action=action.id, outcome=ActionOutcome(result, "as told")))

    def hold(
        self,
        node: str = "n1",
        *,
        drained: bool = False,
        owner: HoldOwner = HoldOwner.US,
        schedulable: bool | None = False,
    ) -> None:
        seen = SchedulerNodeState(node=node, schedulable=schedulable, drained=drained, owner=owner)
        self.submit(HoldsObserved(at=self.now, holds=(seen,)))

    def orders_end(self, verb: str, state: OrderState = OrderState.SUCCEEDED, detail: str = "") -> None:
        for action in self.open_actions(verb):
            update = OrderUpdate(id=action.id, state=state, at=self.now, detail=detail)
            self.submit(OrderAnswered(at=self.now, node=action.node, update=update))

    def node_state(self, node: str = "n1") -> str:
        return self.state.nodes[node].state.value

    def kinds(self) -> list[str]:
        return [event.kind for event in self.audit]

"""The controller's own decisions for a model: rows in, one input, rows out, by `remediator.pipeline` and nothing else.

What is durable are rows; what a process knows beside them is what the scheduler said. Both are kept once and go by numbers, so
that a state of the model is small, and no decision is computed twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import Action, ActionState, Incident, IncidentState, NodeRecord
from remediator.model.occurrence import Occurrence
from remediator.model.override_records import OperatorOverride
from remediator.model.pipeline_inputs import ActionEnded, AnyInput, FindingsReported, HoldsObserved
from remediator.model.plan_steps import Mode, Verb
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, SchedulerNodeState
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import load_policy
from remediator.state.cluster_state import ClusterState
from remediator.state.state_changes import StateChanges
from remediator.state.unanswered_actions import UnansweredActions
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

START = 1_700_000_000.0
GPU = Component(ComponentKind.GPU, "GPU-3b", "0000:3b:00.0", 0)
LEVEL_MAX = 1  # nodes out at once
_RULE = """playbook: 1
rules:
  - name: lost
    why: x
    match: {findings: [xid/79]}
    steps: [{drain: , timeout_s: 2592000}, {preflight: gate, timeout_s: 2592000}, {return_to_service: , timeout_s: 2592000}]
"""
_TOLD_AT_ONCE = frozenset({Verb.ALERT.value, Verb.COLLECT_EVIDENCE.value})
_BY_US = frozenset({ActionState.CANCELLED, ActionState.EXPIRED})


class Rows(msgspec.Struct, frozen=True):
    """What the last commit left in the database, as far as decisions or the checks need it."""

    nodes: Mapping[str, NodeRecord] = {}
    findings: Mapping[str, Finding] = {}
    incidents: Mapping[str, Incident] = {}  # open ones
    actions: Mapping[str, Action] = {}  # of open incidents
    settled: Mapping[str, str] = {}
    operator_overrides: Mapping[str, OperatorOverride] = {}
    occurrences: tuple[Occurrence, ...] = ()
    given_up: Mapping[str, Action] = {}
    written: frozenset[str] = frozenset()  # ids of all actions and decisions there ever were

    @property
    def key(self) -> bytes:
        parts = [sorted(part.items()) for part in (self.nodes, self.findings, self.incidents, self.actions)]
        said = [sorted(self.settled.items()), sorted(self.operator_overrides.items()), sorted(self.given_up.items())]
        return msgspec.json.encode([*parts, *said, self.occurrences, sorted(self.written)])


class Memory(NamedTuple):
    """What a process decides by: rows (their number) and what the scheduler said last."""

    rows: int
    holds: tuple[SchedulerNodeState, ...] = ()


@cache
def settings() -> DecisionSettings:
    """One rule that takes a node out, tests it and brings it back; one node at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        path.write_text(_RULE)
        return DecisionSettings(policy=load_policy([path]), mode=Mode.ACT, budget=level_only_budget(LEVEL_MAX))


def fault_of(node: str) -> Finding:
    """What is wrong with a node's GPU."""
    return Finding(
        id=finding_id(node, "xid", "79", GPU, "model"),
        node=node,
        check="xid",
        code="79",
        component=GPU,
        severity=Severity.FATAL,
        summary="fell off the bus",
        first_seen=START,
        last_seen=START,
        origin="model",
        active=True,
    )


class Centre:
    """The pipeline as a function of numbers."""

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._rows_known: dict[bytes, int] = {}
        self._memories: list[Memory] = []
        self._memories_known: dict[Memory, int] = {}
        self._folded: dict[tuple[int, bytes], int] = {}

    def first(self, nodes: tuple[str, ...]) -> int:
        """The memory of a term that has heard once from every node, all of them in service."""
        memory = self._memory(Memory(self._row(Rows())))
        for node in nodes:
            memory = self.fold(memory, FindingsReported(at=START, node=node, boot_id="b", active=()))
        return self.fold(
            memory, HoldsObserved(at=START, holds=tuple(SchedulerNodeState(node, schedulable=True) for node in nodes))
        )

    def loaded(self, rows: int) -> int:
        """The memory of a process that has just read the database."""
        return self._memory(Memory(rows))

    def rows_of(self, memory: int) -> int:
        """The rows that a memory consists of, once it is written."""
        return self._memories[memory].rows

    def rows(self, number: int) -> Rows:
        """The rows themselves."""
        return self._rows[number]

    def known(self, memory: int) -> Rows:
        """The rows that a process goes by."""
        return self._rows[self._memories[memory].rows]

    def fold(self, memory: int, item: AnyInput) -> int:
        """What is known after an input; what is only to be told is told at once."""
        key = (memory, msgspec.json.encode(item))
        if key not in self._folded:
            self._folded[key] = self._handled(memory, item)
        return self._folded[key]

    def _handled(self, memory: int, item: AnyInput) -> int:
        before = self._memories[memory]
        state = self.state(memory)
        apply_input(state, item, settings())
        for action in [a for a in state.actions.values() if a.verb in _TOLD_AT_ONCE and not a.state.final]:
            apply_input(
                state,
                ActionEnded(at=item.at, action=action.id, outcome=ActionOutcome(ActionResult.DONE, "told")),
                settings(),
            )
        holds = tuple(sorted(state.holds.values(), key=lambda hold: hold.node))
        rows = after(self._rows[before.rows], state.take_changes())
        return self._memory(Memory(self._row(rows), holds))

    def state(self, memory: int) -> ClusterState:
        """As `Journal.load` restores it, with what the scheduler said since."""
        rows, holds = self._rows[self._memories[memory].rows], self._memories[memory].holds
        state = ClusterState.restored(
            nodes=rows.nodes.values(),
            findings=rows.findings.values(),
            incidents=rows.incidents.values(),
            actions=rows.actions.values(),
            occurrences=rows.occurrences,
            settled=rows.settled.items(),
            operator_overrides=rows.operator_overrides.items(),
        )
        state.unanswered_actions = UnansweredActions(rows.given_up.values())
        for hold in holds:
            state.put_hold(hold)
        state.changes = StateChanges()
        return state

    def _row(self, rows: Rows) -> int:
        number = self._rows_known.setdefault(rows.key, len(self._rows))
        if number == len(self._rows):
            self._rows.append(rows)
        return number

    def _memory(self, memory: Memory) -> int:
        number = self._memories_known.setdefault(memory, len(self._memories))
        if number == len(self._memories):
            self._memories.append(memory)
        return number


def after(rows: Rows, changes: StateChanges) -> Rows:
    """The rows after a commit, without those that no later term would load."""
    incidents = {
        i.id: i for i in {**rows.incidents, **changes.incidents}.values() if i.state is not IncidentState.CLOSED
    }
    actions = {**rows.actions, **changes.actions}
    settled = {**rows.settled, **changes.settled}
    operator_overrides = {**rows.operator_overrides, **changes.operator_overrides}
    return Rows(
        nodes={**rows.nodes, **changes.nodes},
        findings={**rows.findings, **changes.findings},
        incidents=incidents,
        actions={a.id: a for a in actions.values() if a.incident in incidents or not (a.incident or a.state.final)},
        settled={finding: incident for finding, incident in settled.items() if incident},
        operator_overrides={name: said for name, said in operator_overrides.items() if said is not None},
        occurrences=(*rows.occurrences, *changes.occurrences),
        given_up={**rows.given_up, **{a.id: a for a in changes.actions.values() if a.state in _BY_US}},
        written=rows.written | changes.actions.keys() | changes.decisions.keys(),
    )

"""Replays recorded inputs, exactly (to verify that record and policy give the same decisions) or under another policy.

Another policy would have acted differently, and the record holds only what the original one led to. So reports and
operator commands come from the record, and the effects of the policy are simulated
(`remediator.replay.simulated_cluster`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from remediator.decisions.decision_settings import DecisionSettings
from remediator.model.journal_records import Answer, Decision
from remediator.model.pipeline_inputs import (
    AnyInput,
    FindingsReported,
    HoldsObserved,
    InventoryChanged,
    PlacementChanged,
    PolicyChanged,
    VerdictsReached,
)
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.pipeline import apply_input
from remediator.replay.simulated_cluster import AnswerScript, SimulatedCluster
from remediator.state.cluster_state import ClusterState

_REPORTED = (FindingsReported, PlacementChanged, InventoryChanged, VerdictsReached)


class PolicyOutcome(msgspec.Struct, frozen=True):
    """A policy's answers to an incident, in order."""

    incident: str
    node: str
    title: str
    opened_at: float
    answers: tuple[tuple[str, str], ...]  # rule, answer


class PolicyTrial(msgspec.Struct, frozen=True):
    """A policy tried on a record."""

    policy: str
    incidents: dict[str, PolicyOutcome]
    decisions: int
    isolations: int
    isolated_hours: float  # summed over nodes


class PolicyDifference(msgspec.Struct, frozen=True):
    """An incident that two policies answer differently; None where one has no such incident."""

    a: PolicyOutcome | None
    b: PolicyOutcome | None


def replay_decisions(inputs: Iterable[AnyInput], settings: DecisionSettings) -> list[Decision]:
    """Repeat every decision of the record under one policy, in the recorded mode."""
    state = ClusterState()
    decisions: list[Decision] = []
    for item in inputs:
        if isinstance(item, PolicyChanged):
            settings = msgspec.structs.replace(settings, mode=item.mode)
        apply_input(state, item, settings)
        decisions += state.take_changes().decisions.values()
    return decisions


def try_policy(inputs: Iterable[AnyInput], settings: DecisionSettings) -> PolicyTrial:
    """Return what a policy would have decided on this record."""
    rehearsal = SimulatedCluster(settings, AnswerScript(invented=False))
    for item in inputs:
        rehearsal.now = rehearsal.now or item.at
        theirs = _external_input(item, rehearsal.state)
        if theirs is not None:
            rehearsal.run(theirs.at)
            rehearsal.submit(theirs)
    rehearsal.run(rehearsal.now)
    decisions = list(rehearsal.decisions.values())
    policy = settings.policy
    told = {
        i.id: PolicyOutcome(
            i.id,
            i.node,
            i.title,
            i.opened_at,
            tuple((d.rule, d.answer.value) for d in decisions if d.incident == i.id),
        )
        for i in rehearsal.incidents.values()
    }
    isolating = [d for d in decisions if d.answer is Answer.ACT and policy.by_name[d.rule].isolates]
    return PolicyTrial(
        policy=f"{policy.source} {policy.digest}",
        incidents=told,
        decisions=len(decisions),
        isolations=len({d.incident for d in isolating}),
        isolated_hours=round(rehearsal.isolated_s / 3600, 3),
    )


def compare_policies(a: PolicyTrial, b: PolicyTrial) -> list[PolicyDifference]:
    """Return the incidents that two policies answer differently, oldest first."""
    found = [PolicyDifference(a.incidents.get(i), b.incidents.get(i)) for i in a.incidents.keys() | b.incidents.keys()]
    different = [d for d in found if (d.a and d.a.answers) != (d.b and d.b.answers)]
    return sorted(different, key=_opening_key)


def _opening_key(difference: PolicyDifference) -> tuple[float, str]:
    told = difference.a or difference.b
    return (told.opened_at, told.incident) if told else (0.0, "")


def _external_input(item: AnyInput, state: ClusterState) -> AnyInput | None:
    """Return an input that no policy caused: a report, or an operator's command.

    Our holds in the record were another policy's.
    """
    if isinstance(item, _REPORTED):
        return item
    if not isinstance(item, HoldsObserved):
        return None
    theirs = tuple(hold for hold in item.holds if hold.owner is HoldOwner.OPERATOR or _is_in_service(hold, state))
    return HoldsObserved(at=item.at, holds=theirs) if theirs else None


def _is_in_service(hold: SchedulerNodeState, state: ClusterState) -> bool:
    """Return whether no policy changed the node's service state.

    An operator released it, it was first seen in service, or it has not changed.
    """
    before = state.holds.get(hold.node)
    return bool(hold.schedulable) and (before is None or before.owner is HoldOwner.OPERATOR or bool(before.schedulable))

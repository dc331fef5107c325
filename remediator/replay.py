"""Recorded inputs once more: exactly, to show that the same record and policy give the same decisions, or under another policy.

Another policy would have done other things, and the record holds only what the one in force led to. So what nodes reported
and people did is taken from the record, and what the policy itself caused is imagined (`remediator.rehearsal`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from remediator.decide.settings import Settings
from remediator.model.hold import NodeHold, Owner
from remediator.model.inputs import (
    AnyInput,
    FindingsReported,
    HoldsObserved,
    InventoryChanged,
    PlacementChanged,
    PolicyChanged,
    VerdictsReached,
)
from remediator.model.records import Answer, Decision
from remediator.pipeline import handle
from remediator.rehearsal import Rehearsal, World
from remediator.state import ClusterState

_REPORTED = (FindingsReported, PlacementChanged, InventoryChanged, VerdictsReached)


class Told(msgspec.Struct, frozen=True):
    """What a policy made of an incident: its answers in their order."""

    incident: str
    node: str
    title: str
    opened_at: float
    answers: tuple[tuple[str, str], ...]  # rule, answer


class WhatIf(msgspec.Struct, frozen=True):
    """A policy tried on a record."""

    policy: str
    incidents: dict[str, Told]
    decisions: int
    isolations: int
    isolated_hours: float  # summed over nodes


class Difference(msgspec.Struct, frozen=True):
    """An incident that two policies answer differently; None where one has no such incident."""

    a: Told | None
    b: Told | None


def replayed(inputs: Iterable[AnyInput], settings: Settings) -> list[Decision]:
    """Every decision of the record, made once more under one policy; the mode is the recorded one."""
    state = ClusterState()
    decisions: list[Decision] = []
    for item in inputs:
        if isinstance(item, PolicyChanged):
            settings = msgspec.structs.replace(settings, mode=item.mode)
        handle(state, item, settings)
        decisions += state.take_changes().decisions.values()
    return decisions


def what_if(inputs: Iterable[AnyInput], settings: Settings) -> WhatIf:
    """What a policy would have decided on this record."""
    rehearsal = Rehearsal(settings, World(invented=False))
    for item in inputs:
        rehearsal.now = rehearsal.now or item.at
        theirs = _from_outside(item, rehearsal.state)
        if theirs is not None:
            rehearsal.run(theirs.at)
            rehearsal.tell(theirs)
    rehearsal.run(rehearsal.now)
    decisions = list(rehearsal.decisions.values())
    policy = settings.policy
    told = {
        i.id: Told(
            i.id,
            i.node,
            i.title,
            i.opened_at,
            tuple((d.rule, d.answer.value) for d in decisions if d.incident == i.id),
        )
        for i in rehearsal.incidents.values()
    }
    isolating = [d for d in decisions if d.answer is Answer.ACT and policy.by_name[d.rule].isolates]
    return WhatIf(
        policy=f"{policy.source} {policy.digest}",
        incidents=told,
        decisions=len(decisions),
        isolations=len({d.incident for d in isolating}),
        isolated_hours=round(rehearsal.isolated_s / 3600, 3),
    )


def differences(a: WhatIf, b: WhatIf) -> list[Difference]:
    """Incidents that the two answer differently, oldest first."""
    found = [Difference(a.incidents.get(i), b.incidents.get(i)) for i in a.incidents.keys() | b.incidents.keys()]
    different = [d for d in found if (d.a and d.a.answers) != (d.b and d.b.answers)]
    return sorted(different, key=_opened)


def _opened(difference: Difference) -> tuple[float, str]:
    told = difference.a or difference.b
    return (told.opened_at, told.incident) if told else (0.0, "")


def _from_outside(item: AnyInput, state: ClusterState) -> AnyInput | None:
    """What nobody here caused: reports, and what people did to nodes. A hold of ours in the record was another policy's."""
    if isinstance(item, _REPORTED):
        return item
    if not isinstance(item, HoldsObserved):
        return None
    theirs = tuple(hold for hold in item.holds if hold.owner is Owner.OPERATOR or _in_service(hold, state))
    return HoldsObserved(at=item.at, holds=theirs) if theirs else None


def _in_service(hold: NodeHold, state: ClusterState) -> bool:
    """Given back by people, in service when it was first asked about, or as before: no policy's doing, nor what runs there."""
    before = state.holds.get(hold.node)
    return bool(hold.schedulable) and (before is None or before.owner is Owner.OPERATOR or bool(before.schedulable))

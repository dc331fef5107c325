"""Incidents about more than one node: a place they share, the breaker, silence. They act on nothing; people are told.

They stand beside the nodes' own incidents. `node` holds what they are about, ``rack:r12``, which no node can be called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec.structs import replace

from remediator.model.plan import Verb
from remediator.model.records import Action, Answer, Decision, Incident, IncidentState
from remediator.state import ClusterState

BUILT_IN = "built-in"  # in place of a policy's digest: no playbook can change this
EVIDENCE_MAX = 100
ALERT_S = 86400.0


def open_wide(state: ClusterState, about: str, rule: str, why: str, members: Iterable[str], now: float) -> Incident:
    """Open an incident about `about`, write its decision down, and tell people.

    Args:
        state: everything known; has no open incident about it yet.
        about: ``KIND:NAME``.
        rule: what of ours opened it.
        why: one sentence with figures.
        members: the nodes it concerns.
        now: UTC seconds.
    """
    named = tuple(sorted(members))
    evidence = [f for node in named if (i := state.incident_of(node)) is not None for f in i.findings]
    known = tuple(f for f in dict.fromkeys(evidence) if f in state.findings)[:EVIDENCE_MAX]
    cause = hashlib.sha256(f"{about}\x1f{now!r}".encode()).hexdigest()
    incident = Incident(
        id=f"inc-{cause[:12]}",
        node=about,
        title=why,
        opened_at=now,
        state=IncidentState.WAITING,
        findings=known,
        rule=rule,
        answer=Answer.WATCH,
        decisions=1,
        policy=BUILT_IN,
        answered=len(known),
        outcome=why,
        injected=bool(known) and all(state.findings[f].injected for f in known),
        wide=True,
        members=named,
    )
    decision = Decision(
        id=incident.decision,
        incident=incident.id,
        node=about,
        at=now,
        answer=Answer.WATCH,
        rule=rule,
        reason=why,
        policy=BUILT_IN,
        findings=known,
    )
    state.put_decision(decision)
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {about}: {why}", incident=incident)
    alert = Action(
        id=f"{decision.id}.tells.{Verb.ALERT.value}",
        incident=incident.id,
        decision=decision.id,
        node=about,
        verb=Verb.ALERT.value,
        planned_at=now,
        deadline=now + ALERT_S,
        reason=f"{incident.id} {rule}",
        data={"how": why},
    )
    state.put_action(alert)
    return incident


def join(state: ClusterState, incident: Incident, node: str) -> None:
    """One more node belongs to it."""
    if node not in incident.members:
        state.put_incident(replace(incident, members=tuple(sorted((*incident.members, node)))))

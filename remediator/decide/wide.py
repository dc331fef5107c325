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
from vocabulary.counts import counted
from vocabulary.finding import Severity

BUILT_IN = "built-in"  # in place of a policy's digest: no playbook can change this
EVIDENCE_MAX = 100
ALERT_S = 86400.0
CAUSE, SLOW_CAUSE = "common-cause", "slow-cause"  # the second holds nobody back
GRAVE = Severity.ERROR  # at least: each of them says that one node's own incident is not the whole truth


def open_wide(state: ClusterState, about: str, rule: str, why: str, members: Iterable[str], now: float) -> Incident:
    """Open an incident about `about`, write its decision down, and tell people. Returns it.

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
    cause = hashlib.sha256(f"{about}\x1f{now!r}\x1f{why}".encode()).hexdigest()  # another reason is another incident
    incident = Incident(
        id=f"inc-{cause[:12]}",
        node=about,
        title=why,
        opened_at=now,
        state=IncidentState.WAITING,
        findings=known,
        answer=Answer.WATCH,
        policy=BUILT_IN,
        answered=len(known),
        injected=bool(known) and all(state.findings[f].injected for f in known),
        wide=True,
        members=named,
    )
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {about}: {why}", incident=incident)
    return say(state, incident, rule, why, now)


def say(state: ClusterState, incident: Incident, rule: str, why: str, now: float) -> Incident:
    """From now on it stands under `rule`: one more decision, and people are told. Returns the incident as it is then."""
    said = replace(incident, rule=rule, outcome=why, decisions=incident.decisions + 1)
    decision = Decision(
        id=said.decision,
        incident=said.id,
        node=said.node,
        at=now,
        answer=Answer.WATCH,
        rule=rule,
        reason=why,
        policy=BUILT_IN,
        findings=said.findings,
    )
    state.put_decision(decision)
    state.put_incident(said)
    alert = Action(
        id=f"{decision.id}.tells.{Verb.ALERT.value}",
        incident=said.id,
        decision=decision.id,
        node=said.node,
        verb=Verb.ALERT.value,
        planned_at=now,
        deadline=now + ALERT_S,
        reason=f"{said.id} {rule}",
        data={"how": why, "severity": GRAVE.value},
    )
    state.put_action(alert)
    return said


def hold_back(state: ClusterState, out_max: int, now: float) -> None:
    """A slow cause of which so many members are out holds the others back from now on."""
    for incident in state.wide():
        out = [name for name in incident.members if name in state.held]
        if incident.rule == SLOW_CAUSE and len(out) >= out_max:
            why = f"{len(out)} of its {counted(len(incident.members), 'node')} are out; no more of them is isolated until somebody has looked"
            say(state, incident, CAUSE, f"{incident.title}: {why}", now)


def join(state: ClusterState, incident: Incident, node: str) -> None:
    """One more node belongs to it."""
    if node not in incident.members:
        state.put_incident(replace(incident, members=tuple(sorted((*incident.members, node)))))

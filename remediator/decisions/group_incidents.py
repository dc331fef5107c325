"""Group incidents: about a shared location, a job, the breaker or silence. They act on nothing; operators are notified.

They exist beside the nodes' own incidents. `node` holds their subject, such as ``rack:r12``, which no node can be
called. Operators are notified when one opens and as it doubles; later messages belong to the same alert.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec.structs import replace

from remediator.model.journal_records import (
    BREAKER,
    BUILT_IN,
    CAUSE,
    EXPLAINING,
    SLOW_CAUSE,
    Action,
    Answer,
    Decision,
    Facts,
    Incident,
    IncidentState,
)
from remediator.model.plan_steps import Verb
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Severity
from vocabulary.text.plurals import format_count

EVIDENCE_MAX = 100
ALERT_S = 86400.0
GROUP_SEVERITY = Severity.ERROR  # at least: one node's own incident does not explain the situation
RETELL_S = 30.0  # minimum between two messages about one incident


def open_group_incident(
    state: ClusterState, about: str, rule: str, why: str, members: Iterable[str], now: float
) -> Incident:
    """Open an incident about `about` and return it; `announce_group_incident` adds its decision and message.

    Args:
        state: has no open incident about it yet.
        about: ``KIND:NAME``.
        rule: the built-in rule that opens it.
        why: one sentence with figures, its title.
        members: the nodes it concerns.
        now: UTC seconds.
    """
    named = tuple(sorted(members))
    evidence = [f for node in named if (i := state.incident_of(node)) is not None for f in i.findings]
    known = tuple(f for f in dict.fromkeys(evidence) if f in state.findings)[:EVIDENCE_MAX]
    incident = Incident(
        id=group_incident_id(about, why, now),
        node=about,
        title=why,
        opened_at=now,
        state=IncidentState.WAITING,
        findings=known,
        rule=rule,
        answer=Answer.WATCH,
        policy=BUILT_IN,
        answered=len(known),
        injected=bool(known) and all(state.findings[f].injected for f in known),
        wide=True,
        members=named,
    )
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {about}: {why}", incident=incident)
    return incident


def group_incident_id(about: str, why: str, now: float) -> str:
    """Return the id of an incident about `about` that opens now; another reason gives another incident."""
    cause = hashlib.sha256(f"{about}\x1f{now!r}\x1f{why}".encode()).hexdigest()
    return f"inc-{cause[:12]}"


def announce_group_incident(state: ClusterState, incident: Incident, rule: str, follows: str, now: float) -> Incident:
    """Put the incident under `rule` with one more decision, and notify operators of its title and consequences.

    Returns the updated incident.
    """
    update = incident.decisions > 0
    why = f"{incident.title}. {follows}" if follows else incident.title
    said = replace(
        incident,
        rule=rule,
        outcome=follows or incident.title,
        decisions=incident.decisions + 1,
        told_size=incident_node_count(incident),
        told_at=now,
    )
    decision = Decision(
        id=said.decision,
        incident=said.id,
        node=said.node,
        at=now,
        answer=said.answer or Answer.WATCH,
        rule=rule,
        reason=why,
        policy=said.policy,
        findings=said.findings,
    )
    state.put_decision(decision)
    state.put_incident(said)
    built_in = said.policy == BUILT_IN or rule in EXPLAINING
    data: Facts = (
        {"how": why} | ({"severity": GROUP_SEVERITY.value} if built_in else {}) | ({"update": True} if update else {})
    )
    alert = Action(
        id=f"{decision.id}.tells.{Verb.ALERT.value}",
        incident=said.id,
        decision=decision.id,
        node=said.node,
        verb=Verb.ALERT.value,
        planned_at=now,
        deadline=now + ALERT_S,
        reason=f"{said.id} {rule}",
        data=data,
    )
    state.put_action(alert)
    return said


def describe_cause_consequences(state: ClusterState, incident: Incident, rule: str, out_max: int) -> str:
    """Describe the consequences for the nodes of a common cause, and what an operator can do."""
    if rule == SLOW_CAUSE:
        return f"Its nodes are isolated within the budget until {out_max} of them are out of service, then no more."
    others = (
        "For the same reason the breaker stays closed: these nodes do not count toward it, and nodes outside the group are "
        "isolated within the budget as usual"
        if state.incident_of(BREAKER) is None
        else "The breaker is open as well, so no other node is isolated either"
    )
    return (
        "No node of this group is isolated while this incident is open. This is by design: isolating nodes does not fix what "
        f"they share. {others}. To have each of these nodes handled on its own instead: "
        f"healthctl incidents resolve {incident.id} 'WHY'"
    )


def mark_slow_cause_blocking(state: ClusterState, out_max: int, now: float) -> None:
    """Mark a slow cause as blocking once so many members are isolated."""
    for incident in state.wide():
        out = [name for name in incident.members if name in state.held]
        if incident.rule == SLOW_CAUSE and len(out) >= out_max:
            why = f"{len(out)} of these {format_count(len(incident.members), 'node')} are out. "
            announce_group_incident(
                state, incident, CAUSE, why + describe_cause_consequences(state, incident, CAUSE, out_max), now
            )


def incident_node_count(incident: Incident) -> int:
    """Return the number of nodes it is about."""
    return max(len(incident.members), incident.fleet)


def has_doubled(incident: Incident, now: float) -> bool:
    """Return whether operators should be notified again: the number has doubled since, and some time has passed."""
    return incident_node_count(incident) >= 2 * max(1, incident.told_size) and now - incident.told_at >= RETELL_S


def join_group_incident(state: ClusterState, incident: Incident, node: str) -> Incident:
    """Add a member. Returns the updated incident."""
    if node not in incident.members:
        incident = replace(incident, members=tuple(sorted((*incident.members, node))))
        state.put_incident(incident)
    return incident


def name_first_nodes(nodes: Iterable[str], named_max: int = 10) -> str:
    """Return the first of these nodes by name.

    >>> name_first_nodes(["n1", "n2", "n3"], named_max=2)
    'n1, n2, …'
    """
    known = list(nodes)
    return ", ".join(known[:named_max]) + (", …" if len(known) > named_max else "")


def count_of_total(count: int, total: int, noun: str) -> str:
    """Format a count of a total.

    >>> count_of_total(3, 30, "node"), count_of_total(30, 30, "node")
    ('3 of 30 nodes', 'all 30 nodes')
    """
    return f"all {format_count(total, noun)}" if count >= total else f"{count} of {format_count(total, noun)}"

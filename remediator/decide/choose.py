"""Which rule answers an incident now, and may it act: `(incident, state, settings, now) → decision, with its reason`.

A decision is made when a higher-ranking rule comes to match, and again while a guard holds one back. The same answer
is not written twice.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.budget import Guard, isolation_guards
from remediator.decide.lifecycle import move
from remediator.decide.policy import Rule
from remediator.decide.settings import Mode, Settings
from remediator.model.records import (
    ActionState,
    Answer,
    Decision,
    Incident,
    IncidentState,
    NodeState,
    StepRun,
    Verb,
)
from remediator.state import ClusterState

_SUSPECT_FROM = {NodeState.HEALTHY, NodeState.PROBATION}


def decide(state: ClusterState, incident: Incident, settings: Settings, now: float) -> None:
    """Decide, or leave the decision in force as it is."""
    found = settings.policy.rule_for(state.findings_of(incident))
    if found is None:
        return  # every finding has cleared; the plan in force, if any, runs to its end
    rank, rule, because = found
    in_force = incident.rank
    asked_again = incident.answer is Answer.HOLD or (incident.answer is Answer.RECOMMEND and settings.mode is Mode.ACT)
    if in_force is not None and rank >= in_force and not asked_again:
        return
    guards = _guards(state, incident, rule, settings, now)
    answer = _answer(rule, guards, settings.mode)
    if incident.state is IncidentState.ACTING and answer is not Answer.ACT:
        return  # a plan under way is only ever replaced by another one
    if answer is Answer.HOLD and incident.answer is Answer.HOLD and rank == in_force:
        return
    refused = "; ".join(str(g) for g in guards if not g.passed)
    reason = f"{because.kind} on {because.component} of {because.node}: {rule.why}" + (
        f" — held: {refused}" if refused else ""
    )
    decided = replace(incident, rule=rule.name, rank=rank, answer=answer, decisions=incident.decisions + 1)
    state.put_decision(
        Decision(
            id=decided.decision,
            incident=incident.id,
            node=incident.node,
            at=now,
            answer=answer,
            rule=rule.name,
            reason=reason,
            policy=settings.policy.digest,
            findings=incident.findings,
            guards=tuple(str(g) for g in guards),
        )
    )
    _cancel_plan(state, incident, now)
    if answer is Answer.ACT:
        decided = replace(
            decided, state=IncidentState.ACTING, plan=tuple(tuple(StepRun(s) for s in stage) for stage in rule.stages)
        )
    state.put_incident(decided)
    _suspect(state, decided, now)
    state.note(
        now,
        "decision",
        f"{decided.decision} {answer.value}: {rule.name}: {reason}",
        incident=decided,
        data={"rule": rule.name, "answer": answer.value},
    )


def _answer(rule: Rule, guards: tuple[Guard, ...], mode: Mode) -> Answer:
    if not rule.stages:
        return Answer.WATCH
    if not all(guard.passed for guard in guards):
        return Answer.HOLD
    return Answer.ACT if mode is Mode.ACT else Answer.RECOMMEND


def _guards(state: ClusterState, incident: Incident, rule: Rule, settings: Settings, now: float) -> tuple[Guard, ...]:
    isolates = any(step.verb is Verb.DRAIN for stage in rule.stages for step in stage)
    if not isolates or state.nodes[incident.node].held:
        return ()
    return isolation_guards(settings.budget, state.nodes.values(), state.isolated_at, now)


def _cancel_plan(state: ClusterState, incident: Incident, now: float) -> None:
    for action in [a for a in state.actions.values() if a.incident == incident.id and not a.state.final]:
        state.put_action(
            replace(action, state=ActionState.CANCELLED, finished_at=now, detail="a higher-ranking rule took over")
        )


def _suspect(state: ClusterState, incident: Incident, now: float) -> None:
    node = state.nodes[incident.node]
    if incident.answer is not Answer.WATCH and node.state in _SUSPECT_FROM:
        state.put_node(move(node, NodeState.SUSPECT, now, f"{incident.id}: {incident.rule}"))

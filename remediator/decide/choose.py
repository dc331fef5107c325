"""Which rule answers an incident now, and may it act: `(incident, state, settings, now) → decision, with its reason`.

A decision is made when a higher-ranking rule comes to fit, and again while a guard, a person or the mode holds one back.
The same answer is not written twice.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.budget import isolation_guards
from remediator.decide.guards import Guarded, ask
from remediator.decide.lifecycle import move
from remediator.decide.policy import Answered, Rule
from remediator.decide.settings import Settings
from remediator.model.occurrence import Occurrence
from remediator.model.plan import Mode, StepRun
from remediator.model.records import ActionState, Answer, Decision, Incident, IncidentState
from remediator.model.rules import NodeState
from remediator.state import ClusterState

_SUSPECT_FROM = {NodeState.HEALTHY, NodeState.PROBATION}
_ASKED_AGAIN = {Answer.HOLD, Answer.APPROVE, Answer.RECOMMEND, Answer.OBSERVE}
_BY_MODE = {Mode.OBSERVE: Answer.OBSERVE, Mode.RECOMMEND: Answer.RECOMMEND, Mode.APPROVE: Answer.APPROVE}


def may_change(incident: Incident) -> bool:
    """Whether time alone may lead to another answer: the incident has none yet, or one that something holds back."""
    return incident.answer is None or incident.answer in _ASKED_AGAIN


def decide(state: ClusterState, incident: Incident, settings: Settings, now: float) -> None:
    """Decide, or leave the decision in force as it is."""
    policy = settings.policy
    findings = state.live_findings_of(incident, now)
    found = policy.answer(findings, state, now)
    if found is None:
        return  # every finding has cleared; the plan in force, if any, runs to its end
    outranks = incident.answer is None or found.rank < policy.rank(incident.rule)
    if not outranks and incident.answer not in _ASKED_AGAIN:
        return
    guards = _guards(state, incident, found, settings, now)
    answer = _answer(incident, found.rule, guards, settings.mode)
    if incident.state is IncidentState.ACTING and answer is not Answer.ACT and policy.acts(incident.rule):
        return  # a plan that changes something is only ever replaced by another one
    if not outranks and answer is incident.answer and found.rule.name == incident.rule:
        return
    decided = replace(
        incident,
        rule=found.rule.name,
        answer=answer,
        decisions=incident.decisions + 1,
        state=IncidentState.ACTING if answer is Answer.ACT else IncidentState.OPEN,
        plan=_plan(found.rule) if answer is Answer.ACT else (),
    )
    decision = Decision(
        id=decided.decision,
        incident=incident.id,
        node=incident.node,
        at=now,
        answer=answer,
        rule=found.rule.name,
        reason=_reason(found, guards),
        policy=policy.digest,
        findings=incident.findings,
        guards=tuple(str(g) for g in guards),
        considered=policy.considered(findings, found, state, now),
    )
    _cancel_plan(state, incident, now)
    state.put_decision(decision)
    state.put_incident(decided)
    _suspect(state, decided, found.rule, now)
    if answer is Answer.ACT:
        jobs = state.jobs_on(incident.node)
        state.remember(Occurrence(now, f"rule/{found.rule.name}", incident.node, found.finding.component.key, jobs))
    state.note(
        now,
        "decision",
        f"{decided.decision} {answer.value}: {found.rule.name}: {decision.reason}",
        incident=decided,
        data={"rule": found.rule.name, "answer": answer.value},
    )


def _plan(rule: Rule) -> tuple[tuple[StepRun, ...], ...]:
    return tuple(tuple(StepRun(step) for step in stage) for stage in rule.stages)


def _reason(found: Answered, guards: tuple[Guarded, ...]) -> str:
    refused = "; ".join(str(g) for g in guards if not g.passed)
    because = found.finding
    return f"{because.kind} on {because.component} of {because.node}: {found.rule.why}" + (
        f" — held: {refused}" if refused else ""
    )


def _answer(incident: Incident, rule: Rule, guards: tuple[Guarded, ...], mode: Mode) -> Answer:
    if not rule.stages:
        return Answer.WATCH
    if not all(guard.passed for guard in guards):
        return Answer.HOLD
    mode = max(mode, rule.mode, key=lambda m: m.caution)
    if not rule.acts and mode is not Mode.OBSERVE:
        return Answer.ACT  # telling people is what every mode but that one is for
    agreed = incident.rule == rule.name and incident.decision in incident.approved
    if mode is Mode.ACT or (mode is Mode.APPROVE and agreed):
        return Answer.ACT
    return _BY_MODE[mode]


def _guards(
    state: ClusterState, incident: Incident, found: Answered, settings: Settings, now: float
) -> tuple[Guarded, ...]:
    own = ask(found.rule.guards, found.finding, state, now)
    if not found.rule.isolates or state.nodes[incident.node].held:
        return own
    return (*own, *isolation_guards(settings.budget, state.held, len(state.nodes), state.isolated_at, now))


def _cancel_plan(state: ClusterState, incident: Incident, now: float) -> None:
    for action in [a for a in state.actions_of(incident) if not a.state.final]:
        state.put_action(
            replace(action, state=ActionState.CANCELLED, finished_at=now, detail="a higher-ranking rule took over")
        )


def _suspect(state: ClusterState, incident: Incident, rule: Rule, now: float) -> None:
    node = state.nodes[incident.node]
    if rule.acts and node.state in _SUSPECT_FROM:
        state.put_node(move(node, NodeState.SUSPECT, now, f"{incident.id}: {incident.rule}"))

"""Selects the rule for an incident and whether it may act: `(incident, state, settings, now) → decision`.

A decision is made when a higher-ranking rule begins to match, and again while a guard, an operator or the mode blocks
one. The same answer is not written twice.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions import common_cause, job_faults
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_blockers import isolation_blocker_guards
from remediator.decisions.isolation_budget import isolation_guards
from remediator.decisions.node_lifecycle import transition_node
from remediator.decisions.operator_takeover import end_action
from remediator.decisions.policy import Policy, PolicyRule, RuleAnswer
from remediator.decisions.return_outcomes import record_repeat_failure
from remediator.decisions.rule_guards import GuardAnswer, evaluate_rule_guards
from remediator.decisions.rule_matching import has_job_left
from remediator.decisions.spare_nodes import describe_spare_proposal
from remediator.model.journal_records import ActionState, Answer, Decision, Incident, IncidentState
from remediator.model.occurrence import Occurrence
from remediator.model.plan_steps import NON_DISRUPTIVE, Mode, StepRun
from remediator.model.rule_conditions import About, JobScope, NodeState
from remediator.state.cluster_state import ClusterState
from remediator.state.recent_failures import DRILLED

_SUSPECT_FROM = {NodeState.HEALTHY, NodeState.PROBATION}
ASKED_AGAIN = {Answer.BLOCKED, Answer.APPROVE, Answer.RECOMMEND, Answer.OBSERVE}
_BY_MODE = {Mode.OBSERVE: Answer.OBSERVE, Mode.RECOMMEND: Answer.RECOMMEND, Mode.APPROVE: Answer.APPROVE}


def may_decision_change(state: ClusterState, incident_id: str, policy: Policy, now: float) -> bool:
    """Return whether time alone may change the answer: there is none yet, it is blocked, or the job has ended for good."""
    incident = state.incidents[incident_id]
    left = has_job_left(state, state.nodes[incident.node], policy.no_job_s, now)
    return left or incident.answer is None or incident.answer in ASKED_AGAIN


def decide_incident(state: ClusterState, incident: Incident, settings: DecisionSettings, now: float) -> None:
    """Decide, or keep the current decision. Nothing is decided about a retired node."""
    if state.nodes[incident.node].state is NodeState.RETIRED:
        return
    findings = [f for f in state.live_findings_of(incident, now) if not job_faults.is_in_job_incident(state, f.id)]
    found = settings.policy.answer(findings, state, now, incident.told)
    if found is None or _decision_stands(state, incident, found, settings.policy):
        return
    if found.rule.incident is About.JOB:  # it matches only since the finding arrived
        job_faults.absorb_job_fault(state, found.finding, found.rule, settings, now)
        return
    if found.rule.isolates and not incident.suspected:
        incident = replace(incident, suspected=True)
        state.put_incident(incident)
        if not found.finding.injected:
            state.put_node(record_repeat_failure(state.nodes[incident.node], now))
        else:
            state.remember(Occurrence(now, DRILLED, incident.node, incident=incident.id))
        common_cause.detect_common_cause(state, incident, found.finding, settings.budget, now)
    guards = _evaluate_guards(state, incident, found, settings, now)
    answer = _choose_answer(incident, found.rule, guards, settings)
    if _plan_acts(incident) and answer is not Answer.ACT:
        return  # only another plan replaces one that changes something
    same = answer is incident.answer and found.rule.name == incident.rule
    if same and incident.policy == settings.policy.digest:
        return
    decided = replace(
        incident,
        rule=found.rule.name,
        answer=answer,
        decisions=incident.decisions + 1,
        policy=settings.policy.digest,
        answered=len(incident.findings),
        told=incident.told if found.rule.acts else tuple(dict.fromkeys((*incident.told, found.rule.name))),
        state=IncidentState.ACTING if answer is Answer.ACT else IncidentState.OPEN,
        plan=_build_plan(found.rule) if answer is Answer.ACT else (),
    )
    decision = Decision(
        id=decided.decision,
        incident=incident.id,
        node=incident.node,
        at=now,
        answer=answer,
        rule=found.rule.name,
        reason=_decision_reason(state, incident, found, guards),
        policy=settings.policy.digest,
        findings=incident.findings,
        guards=tuple(str(g) for g in guards),
        considered=settings.policy.considered(findings, found, state, now),
    )
    _enact_decision(state, incident, decided, decision, found, now)


def _decision_stands(state: ClusterState, incident: Incident, found: RuleAnswer, policy: Policy) -> bool:
    """Return whether this answer must not replace the current decision."""
    if incident.answer is None or incident.answer in ASKED_AGAIN:
        return False
    node = state.nodes[incident.node]
    if node.state is NodeState.REPLACING and node.held:
        return True  # it is out until an operator returns it; fixing something else does not return it
    if _plan_acts(incident) and incident.rule not in policy.by_name:
        return True  # its rule was removed from the policy; what was started is finished
    has_ended = incident.state is IncidentState.OPEN and bool(incident.plan)
    if has_ended and not found.rule.acts and found.finding.id in incident.findings[: incident.answered]:
        return True  # operators were notified of this finding
    told = not found.rule.acts and found.rule.name in incident.told
    return told or found.rank >= policy.rank(incident.rule, incident.told)


def _plan_acts(incident: Incident) -> bool:
    """Return whether the running plan does more than notify."""
    steps = (run.step for stage in incident.plan for run in stage)
    return incident.state is IncidentState.ACTING and any(step.verb not in NON_DISRUPTIVE for step in steps)


def _enact_decision(
    state: ClusterState, before: Incident, decided: Incident, decision: Decision, found: RuleAnswer, now: float
) -> None:
    for action in [a for a in state.actions_of(before) if not a.state.final]:
        end_action(state, action, ActionState.CANCELLED, now, "a higher-ranking rule took over")
    state.put_decision(decision)
    state.put_incident(decided)
    node = state.nodes[decided.node]
    if found.rule.acts and node.state in _SUSPECT_FROM:
        state.put_node(transition_node(node, NodeState.SUSPECT, now, f"{decided.id}: {decided.rule}"))
    if decision.answer is Answer.ACT:
        state.remember_occurrence(now, f"rule/{found.rule.name}", decided, found.finding.component.key)
    text = f"{decision.id} {decision.answer.value}: {decision.rule}: {decision.reason}"
    state.note(now, "decision", text, incident=decided, data={"rule": decision.rule, "answer": decision.answer.value})


def _build_plan(rule: PolicyRule) -> tuple[tuple[StepRun, ...], ...]:
    if rule.match.job is JobScope.NONE:  # work that arrived meanwhile does not concern the rule
        return tuple(tuple(StepRun(s.for_idle(rule.match.no_job_s)) for s in stage) for stage in rule.stages)
    return tuple(tuple(StepRun(step) for step in stage) for stage in rule.stages)


def _decision_reason(
    state: ClusterState, incident: Incident, found: RuleAnswer, guards: tuple[GuardAnswer, ...]
) -> str:
    refused = "; ".join(str(g) for g in guards if not g.passed)
    because = found.finding
    parts = [f"{because.kind} on {because.component} of {because.node}: {found.rule.why}"]
    if incident.again:
        parts.append(incident.again)
    if found.rule.isolates and not state.nodes[because.node].held:
        parts.append(describe_spare_proposal(state, because.node))
    if refused:
        parts.append(f"blocked: {refused}")
    return " — ".join(parts)


def _choose_answer(
    incident: Incident, rule: PolicyRule, guards: tuple[GuardAnswer, ...], settings: DecisionSettings
) -> Answer:
    if not rule.stages:
        return Answer.WATCH
    if not all(guard.passed for guard in guards):
        return Answer.BLOCKED
    mode = max(settings.mode, rule.mode, key=lambda m: m.caution)
    if not rule.acts and mode is not Mode.OBSERVE:
        return Answer.ACT  # every other mode allows notifications
    shown = incident.rule == rule.name and incident.policy == settings.policy.digest  # as an operator saw it
    agreed = shown and incident.decision in incident.approved
    if mode is Mode.ACT or (mode is Mode.APPROVE and agreed):
        return Answer.ACT
    return _BY_MODE[mode]


def _evaluate_guards(
    state: ClusterState, incident: Incident, found: RuleAnswer, settings: DecisionSettings, now: float
) -> tuple[GuardAnswer, ...]:
    own = evaluate_rule_guards(found.rule.guards, found.finding, state, now)
    if not found.rule.isolates or state.nodes[incident.node].held:
        return own
    node = state.nodes[incident.node]
    return (
        *own,
        *isolation_blocker_guards(state, node),
        *isolation_guards(state, node, found.finding, settings.budget, now),
    )

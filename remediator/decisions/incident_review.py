"""Reviews one incident: decide, advance its plan, close it. What changes nothing rests until something it read changes.

`_times` and `_topics` name all that a review may compare with the clock or read beyond the incident and its node. A
time or a topic too many costs one review; one too few delays a decision (`tests/timelines/test_resting_incidents.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import DAY_S, HOUR_S, IsolationBudget, is_slowness_finding
from remediator.decisions.node_lifecycle import IllegalTransition
from remediator.decisions.operator_takeover import AGAIN_AFTER_S
from remediator.decisions.plan_progress import advance_plan, close_incident, hand_incident_over, open_stage
from remediator.decisions.rule_matching import count_subject
from remediator.decisions.rule_selection import ASKED_AGAIN, decide_incident, may_decision_change
from remediator.model.journal_records import Incident, IncidentState, NodeRecord
from remediator.model.plan_steps import ISOLATING, StepRun, StepState, Verb
from remediator.model.rule_conditions import Distinct, Guards, Scope
from remediator.state.cluster_state import (
    CONTEXT_S,
    EJECT,
    NEEDS_OPERATOR,
    QUIET_S,
    SHOWN_S,
    ClusterState,
)
from remediator.state.cluster_state import ISOLATION as ISOLATED
from remediator.state.incident_reviews import EARLY_S, HISTORY, ISOLATION, SPARES, job_topic
from vocabulary.finding import Finding, Severity


def review_incident(
    state: ClusterState, incident_id: str, settings: DecisionSettings, now: float, *, redecide: bool
) -> None:
    """Advance one open incident as far as possible. `redecide`: its decision may change for other reasons than time."""
    before = _changes_so_far(state)
    decided = redecide
    try:
        decided = decided or may_decision_change(state, incident_id, settings.policy, now)
        if decided:
            decide_incident(state, state.incidents[incident_id], settings, now)
        advance_plan(state, incident_id, settings.budget, now)
        _close_idle_incident(state, incident_id, now)
    except IllegalTransition as error:  # the plan does not fit the node's lifecycle state
        hand_incident_over(state, state.incidents[incident_id], str(error), now)
    except Exception as error:  # noqa: BLE001 - a mistake of ours about one incident must not starve the others
        hand_incident_over(state, state.incidents[incident_id], f"internal error, please report it: {error!r}", now)
    if _changes_so_far(state) != before or incident_id not in state.incidents:
        return
    incident = state.incidents[incident_id]
    asked = incident.answer is None or incident.answer in ASKED_AGAIN or state.nodes[incident.node].left_at is not None
    times, topics = tuple(_times(state, incident, now)), set[str]()
    if asked or decided:
        of_rules = (*times, *_times_of_rules(state, incident, settings, now))
        of_decision = _topics(state, incident, settings)
        if decided:
            state.reviews.keep_decision(incident_id, now, of_rules, of_decision)
        if asked:
            times, topics = of_rules, of_decision
    state.reviews.rest(incident_id, now, times, topics)


def _changes_so_far(state: ClusterState) -> tuple[int, int]:
    return state.reviews.changes, len(state.changes.audit)


def _times(state: ClusterState, incident: Incident, now: float) -> Iterator[float]:
    """Yield the times at which the plan, our hold, or the end of the incident may need something."""
    stage = open_stage(incident) if incident.state is IncidentState.ACTING else None
    for run in incident.plan[stage] if stage is not None else ():
        if _awaits_others(state, incident, run):
            yield now
        yield from (at for at in (run.deadline, run.not_before) if at is not None)
    quiet_s = [float(run.step.how or 0) for stage in incident.plan for run in stage if run.step.verb is Verb.WATCH]
    for finding in state.findings_of(incident):
        if finding.severity is Severity.INFO or quiet_s:
            yield from (finding.last_seen + each for each in (CONTEXT_S, QUIET_S, SHOWN_S, *quiet_s))
    for action in state.actions_of(incident):
        if action.verb == Verb.CORDON.value:
            yield action.deadline if action.finished_at is None else action.finished_at + AGAIN_AFTER_S


def _awaits_others(state: ClusterState, incident: Incident, run: StepRun) -> bool:
    """Return whether a step waits for guards or the budget: why it waits is text with figures, which time changes."""
    if run.state not in (StepState.PENDING, StepState.RUNNING):
        return False
    refused = run.step.verb in ISOLATING and not run.actions and not state.nodes[incident.node].held
    return refused or (run.state is StepState.PENDING and run.step.guards != Guards())


def _times_of_rules(state: ClusterState, incident: Incident, settings: DecisionSettings, now: float) -> Iterator[float]:
    """Yield the times at which another rule may match, or a guard may answer otherwise."""
    node = state.nodes[incident.node]
    if node.left_at is not None and (waits := settings.policy.no_job_s):
        yield from (node.left_at + wait_s for wait_s in waits)
        yield now if node.left_at > now else max(now, node.left_at + max(waits))  # only a tick records that it is over
    for finding in _one_of_each_kind(state, incident):
        reads, subject = settings.policy.reads(finding.kind), count_subject(finding, state)
        for clause in reads.clauses:
            yield from state.history.expiries(clause, subject, now)
        for within_s in reads.company_s:
            yield from (other.last_seen + within_s for other in state.findings_on(incident.node))
    yield from _times_of_budget(state, node, settings.budget, now)


def _one_of_each_kind(state: ClusterState, incident: Incident) -> list[Finding]:
    """Return findings of every kind, component and origin (drill or not): rules read the same for the others."""
    found = {(f.kind, f.component.key, f.injected): f for f in state.findings_of(incident)}
    return list(found.values())


def _times_of_budget(state: ClusterState, node: NodeRecord, budget: IsolationBudget, now: float) -> Iterator[float]:
    times = state.isolated_at
    yield from (at + HOUR_S for at in times[bisect_right(times, now - HOUR_S - EARLY_S) :][:1])
    yield from (at + budget.isolation_gap_s for at in times[-1:])
    for job in state.jobs_on(node.node):
        for kind in (ISOLATED, EJECT):
            for at in state.history.recent_times(job, kind, now - 2 * DAY_S - EARLY_S):
                yield from (at + span for span in (-DAY_S, -HOUR_S, HOUR_S, DAY_S, HOUR_S + DAY_S, 2 * DAY_S))


def _topics(state: ClusterState, incident: Incident, settings: DecisionSettings) -> set[str]:
    """Return what the decision may read beyond the incident and its node."""
    topics = {ISOLATION}
    for finding in state.findings_of(incident):
        reads = settings.policy.reads(finding.kind)
        if reads.spares or is_slowness_finding(finding, settings.budget):
            topics.add(SPARES)
        for clause in reads.clauses:
            if clause.scope is Scope.JOB:
                topics.update(map(job_topic, state.jobs_on(incident.node)))
            elif clause.scope is Scope.CLUSTER or clause.distinct is Distinct.JOBS:
                topics.add(HISTORY)
    return topics


def _close_idle_incident(state: ClusterState, incident_id: str, now: float) -> None:
    """Close an incident without a running plan once nothing of it is active and operators had time to see it."""
    incident = state.incidents.get(incident_id)
    if incident is None or incident.state is not IncidentState.OPEN or incident.kept_open:
        return
    findings = state.findings_of(incident)
    if any(f.active and f.severity is not Severity.INFO for f in findings):
        return
    only_info = all(f.severity is Severity.INFO for f in findings)
    shown_s = SHOWN_S if incident.answer in NEEDS_OPERATOR else QUIET_S if incident.plan else 0.0
    if only_info and now - max((f.last_seen for f in findings), default=0.0) < shown_s:
        return
    close_incident(state, incident, "its findings cleared", now)

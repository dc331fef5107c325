"""Faults of a job itself: one incident about the job, however many of its nodes show it.

A rule with ``incident: job`` requests it. The findings belong to that incident and not to one of their node; an
incident that a node has because of them alone becomes part of it. It isolates no node, and stays open until its
findings or the job have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.group_incident_closure import close_as_part_of
from remediator.decisions.group_incidents import announce_group_incident, group_incident_id, has_doubled
from remediator.decisions.plan_progress import close_incident
from remediator.decisions.policy import Policy, PolicyRule
from remediator.decisions.rule_matching import FITS, finding_misfit
from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import EXPLAINING, Action, Answer, Incident, IncidentState, JobRef
from remediator.model.occurrence import Occurrence
from remediator.model.plan_steps import NON_DISRUPTIVE, Mode, Verb
from remediator.model.rule_conditions import About, Distinct, Scope
from remediator.state.cluster_state import QUIET_S, ClusterState
from remediator.state.recent_failures import CAUSE_OVER, JOB_OVER
from vocabulary.finding import Finding, Severity
from vocabulary.text.plurals import format_count

WINDOW_S = 600.0  # info findings seen longer ago do not belong to a fault that begins now
JOB_GONE_S = 900.0  # a job without a rank for so long has ended; a restarting one is back sooner
FINDINGS_MAX = 500  # per incident; more nodes still join
KINDS_NAMED = 3
NO_NODE_LEAVES = "No node is isolated for this"
ALL_CLEARED, QUIET, JOB_ENDED = "its findings have cleared", "its findings did not recur", "the job has ended"


def find_job_rule(state: ClusterState, finding: Finding, policy: Policy, now: float) -> PolicyRule | None:
    """Return the rule that makes a finding its job's: it matches, or its job already has an incident by it."""
    found = policy.about_job(finding, state, now)
    if found is not None:
        return found
    for job in state.jobs_on(finding.node):
        incident = state.incident_of(f"job:{job}")
        rule = policy.by_name.get(incident.rule) if incident is not None else None
        if rule is not None and rule.incident is About.JOB and finding_misfit(rule.match, finding) == FITS:
            return rule
    return None


def absorb_job_fault(
    state: ClusterState, finding: Finding, rule: PolicyRule, settings: DecisionSettings, now: float
) -> None:
    """Take in a finding that a rule treats as a job's own fault: it joins the job's incident, or opens it."""
    job = _faulty_job(state, finding, rule, now)
    known = state.incident_of(f"job:{job}")
    if known is not None and known.injected and not finding.injected:
        close_incident(state, known, "new failures there are not drills", now)
        known = None
    if known is None:
        word = _job_settlement(state, job, settings.again_after_s, now)
        if word is not None:
            state.settle(finding.id, word)
            return
        found = [finding, *_related_job_findings(state, job, finding, settings.policy, now)]
        known = _open_job_incident(state, job, found, rule, settings, now)
    elif any(other.kind == finding.kind for other in state.findings_of(known)):
        found = [finding]
    else:  # earlier reporters were alone until now
        found = [finding, *_related_job_findings(state, job, finding, settings.policy, now)]
    _add_job_findings(state, known, found, now)
    if not known.decisions:
        _announce_job_fault(state, state.incidents[known.id], rule, settings, now)


def is_in_job_incident(state: ClusterState, finding_id: str) -> bool:
    """Return whether an open incident about a job has this finding."""
    by = state.settled.get(finding_id)
    incident = state.incidents.get(by.incident) if by is not None else None
    return incident is not None and incident.wide


def review_job_incidents(state: ClusterState, settings: DecisionSettings, now: float) -> None:
    """Close ended job incidents, and announce those that grew."""
    for known in state.wide():
        if not known.node.startswith("job:") or known.rule in EXPLAINING:
            continue
        incident = _refresh_job_title(state, _update_job_end_time(state, known, now))
        outcome = _job_incident_end_reason(state, incident, now)
        rule = settings.policy.by_name.get(incident.rule)
        if outcome:
            close_incident(state, incident, outcome, now)
        elif rule is not None and has_doubled(incident, now):
            _announce_job_fault(state, incident, rule, settings, now)


def _faulty_job(state: ClusterState, finding: Finding, rule: PolicyRule, now: float) -> str:
    """Return the job that a finding names; without a name, the node's job of which most nodes show the same."""
    jobs = state.jobs_on(finding.node)
    told = str(finding.evidence.get("job", ""))
    if told in jobs:
        return told
    windows = [c.within_s for c in rule.match.history if c.scope is Scope.JOB and c.distinct is Distinct.NODES]
    since = now - max(windows, default=WINDOW_S)
    return max(jobs, key=lambda job: (len(state.history.nodes_of(job, finding.kind, since)), job))


def _job_settlement(state: ClusterState, job: str, counts_s: float, now: float) -> Settlement | None:
    """Return the operator's settlement of the last incident about the job, while it counts."""
    ends = [state.history.last(f"job:{job}", kind) for kind in (JOB_OVER, CAUSE_OVER)]
    last = max((end for end in ends if end is not None), key=lambda end: end.at, default=None)
    if last is None or not last.component or now > last.at + counts_s:
        return None
    return Settlement(last.incident, last.component, last.at)


def _related_job_findings(state: ClusterState, job: str, first: Finding, policy: Policy, now: float) -> list[Finding]:
    """Return the findings of the same fault on this node and other nodes of the job."""
    found = []
    for node in state.nodes_of_job(job):
        for other in state.findings_on(node):
            present = other.active or (other.severity is Severity.INFO and now - other.last_seen <= WINDOW_S)
            if other.id == first.id or not present or (other.injected and not first.injected):
                continue
            if not is_in_job_incident(state, other.id) and policy.about_job(other, state, now) is not None:
                found.append(other)
    return sorted(found, key=lambda f: (f.first_seen, f.id))


def _open_job_incident(
    state: ClusterState, job: str, found: list[Finding], rule: PolicyRule, settings: DecisionSettings, now: float
) -> Incident:
    about = f"job:{job}"
    incident = Incident(
        id=group_incident_id(about, found[0].id, now),
        node=about,
        title=about,
        opened_at=now,
        state=IncidentState.WAITING,
        rule=rule.name,
        answer=Answer.OBSERVE if _rule_only_observes(rule, settings) else Answer.ACT,
        policy=settings.policy.digest,
        injected=all(finding.injected for finding in found),
        wide=True,
    )
    incident = replace(incident, title=_job_incident_title(state, incident, found))
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {about}: {incident.title}", incident=incident)
    first = found[0]
    jobs, width = state.jobs_on(first.node), state.widest_job_on(first.node)
    acted = Occurrence(
        now,
        f"rule/{rule.name}",
        first.node,
        first.component.key,
        jobs,
        width,
        incident=incident.id,
        injected=first.injected,
    )
    state.remember(acted)
    return incident


def _rule_only_observes(rule: PolicyRule, settings: DecisionSettings) -> bool:
    return Mode.OBSERVE in (rule.mode, settings.mode)


def _add_job_findings(state: ClusterState, incident: Incident, found: Iterable[Finding], now: float) -> None:
    """Move the findings into this incident, and make their nodes its members."""
    incident = state.incidents[incident.id]
    ids = dict.fromkeys(incident.findings)
    members = set(incident.members)
    for finding in found:
        if len(ids) < FINDINGS_MAX:
            ids[finding.id] = None
        if incident.rule not in EXPLAINING:  # otherwise its members are those that it isolates
            members.add(finding.node)
    grown = replace(incident, findings=tuple(ids), answered=len(ids), members=tuple(sorted(members)))
    state.put_incident(grown)
    for node in dict.fromkeys(finding.node for finding in found):
        _close_node_incident(state, grown, node, now)
    for finding in found:
        state.settle(finding.id, Settlement(grown.id))


def _close_node_incident(state: ClusterState, job: Incident, node: str, now: float) -> None:
    """Close a node's own incident if it holds only the job's fault and nothing was done about it."""
    own = state.incident_of(node)
    if own is None or own.kept_open or own.suspected or state.nodes[node].held:
        return
    if any(run.step.verb not in NON_DISRUPTIVE for stage in own.plan for run in stage):
        return
    left = [f for f in state.findings_of(own) if f.id not in job.findings and f.severity is not Severity.INFO]
    if not any(f.active for f in left):
        close_as_part_of(state, state.incidents[job.id], own, now)


def _job_incident_title(state: ClusterState, incident: Incident, findings: Iterable[Finding]) -> str:
    job = incident.node.removeprefix("job:")
    kinds = Counter(finding.kind for finding in findings)
    named = [_finding_kind_text(kind) for kind in sorted(kinds)[:KINDS_NAMED]]
    more = [format_count(len(kinds) - KINDS_NAMED, "other error")] if len(kinds) > KINDS_NAMED else []
    what = " and ".join([", ".join([*named, *more][:-1]), [*named, *more][-1]]) if len(named) > 1 else "".join(named)
    nodes, there = state.nodes_of_job(job), set(incident.members) or {finding.node for finding in findings}
    where = _failed_nodes_text(there, set(nodes))
    known = [text for text in (_job_rank_text(state, job), _partitions_text(state, there)) if text]
    return f"Job {job} fails with {what} on {where}" + (f" ({', '.join(known)})" if known else "")


def _refresh_job_title(state: ClusterState, incident: Incident) -> Incident:
    title = _job_incident_title(state, incident, state.findings_of(incident))
    if title != incident.title:
        incident = replace(incident, title=title)
        state.put_incident(incident)
    return incident


def _failed_nodes_text(failed: set[str], nodes: set[str]) -> str:
    if not failed <= nodes:  # some failed in an earlier attempt
        return format_count(len(failed), "node")
    if failed == nodes:
        return f"all {len(nodes)} of its nodes" if len(nodes) > 1 else "its node"
    return f"{len(failed)} of its {format_count(len(nodes), 'node')}"


def _finding_kind_text(kind: str) -> str:
    """Format a finding's kind for operators.

    >>> _finding_kind_text("xid/31"), _finding_kind_text("training/stalled")
    ('Xid 31', 'training/stalled')
    """
    check, _, code = kind.partition("/")
    return f"Xid {code}" if check == "xid" and code.isdecimal() else kind


def _job_rank_text(state: ClusterState, job: str) -> str:
    """Return the number of ranks of the job's newest attempt, as text."""
    newest: tuple[JobRef, int] | None = None
    for node in state.nodes_of_job(job):
        record = state.nodes[node]
        for ref, world in zip(record.jobs, record.worlds, strict=False):
            if ref.job == job and (newest is None or ref >= newest[0]):
                newest = (ref, world)
    return format_count(newest[1], "rank") if newest is not None and newest[1] else ""


def _partitions_text(state: ClusterState, nodes: Iterable[str]) -> str:
    found = sorted({name for node in nodes for name in state.nodes[node].places.partitions})
    return f"partition{'s' if len(found) > 1 else ''} {', '.join(found[:KINDS_NAMED])}" if found else ""


def _announce_job_fault(
    state: ClusterState, incident: Incident, rule: PolicyRule, settings: DecisionSettings, now: float
) -> None:
    """Add a decision with its message and, the first time, the tickets that the rule requests."""
    if _rule_only_observes(rule, settings):
        return
    first = not incident.decisions
    alerts = [step.how for step in rule.steps if step.verb is Verb.ALERT and step.how]
    tickets = [step for step in rule.steps if step.verb is Verb.TICKET]
    follows = ". ".join(text[:1].upper() + text[1:] for text in (*alerts, rule.why, NO_NODE_LEAVES))
    incident = announce_group_incident(state, replace(incident, answer=Answer.ACT), incident.rule, follows, now)
    for number, step in enumerate(tickets if first else ()):
        ticket = Action(
            id=f"{incident.decision}.tells.{number}.{Verb.TICKET.value}",
            incident=incident.id,
            decision=incident.decision,
            node=incident.node,
            verb=Verb.TICKET.value,
            planned_at=now,
            deadline=now + step.timeout_s,
            reason=f"{incident.id} {incident.rule}",
            data={"how": step.how or incident.title},
        )
        state.put_action(ticket)


def _update_job_end_time(state: ClusterState, incident: Incident, now: float) -> Incident:
    """Update since when no node has a rank of the job."""
    runs = bool(state.nodes_of_job(incident.node.removeprefix("job:")))
    if runs == (incident.job_gone_at is None):
        return incident
    incident = replace(incident, job_gone_at=None if runs else now)
    state.put_incident(incident)
    return incident


def _job_incident_end_reason(state: ClusterState, incident: Incident, now: float) -> str:
    """Return why an incident about a job has ended; empty if it has not."""
    if incident.job_gone_at is not None and now - incident.job_gone_at >= JOB_GONE_S:
        return JOB_ENDED
    if any(f.active and f.severity is not Severity.INFO for f in state.findings_of(incident)):
        return ""
    findings = [
        f for node in incident.members for f in state.findings_on(node) if _is_settled_by_incident(state, incident, f)
    ]
    if any(f.active and f.severity is not Severity.INFO for f in findings):  # also those beyond what an incident lists
        return ""
    seen_at = max((f.last_seen for f in findings if f.severity is Severity.INFO), default=None)
    if seen_at is None:
        return ALL_CLEARED
    return QUIET if now - seen_at >= QUIET_S else ""


def _is_settled_by_incident(state: ClusterState, incident: Incident, finding: Finding) -> bool:
    by = state.settled.get(finding.id)
    return by is not None and by.incident == incident.id

"""Groups findings into incidents: one open incident per node, which takes in everything seen there meanwhile.

An info finding opens one only if the policy has a rule for it; otherwise it joins an open incident or is context for
one that opens soon after. A finding of a closed incident opens no new one, unless it has become more severe or, if
info, was seen again: whoever closed the incident knew of it. A settlement by an operator counts for a while against new
sightings, then no longer against a fatal one (`reopen_rules`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from remediator.incidents import reopen_rules
from remediator.model.detector_origin import is_concluded
from remediator.model.finding_settlement import COUNTS_S
from remediator.model.journal_records import Facts, Incident, IncidentState
from remediator.model.occurrence import Occurrence
from remediator.model.rule_conditions import PRESENT_MAX_S, WINDOW_MAX_S
from remediator.state.cluster_state import CONTEXT_S, ClusterState
from vocabulary.finding import Finding, Severity

TITLE_MAX = 200
KNOWN_MAX = 5000  # findings kept per node, and as many again of those that are active and need a reaction
OVERFLOW = "node/findings"  # in history: a node reported more than that
# Limit per severity of an incident, because each decision reads all its findings. A finding that did not join and is
# still active when the incident closes opens the next.
JOINED_MAX, REACTING_JOINED_MAX, FATAL_JOINED_MAX = 200, 500, 1000

Wanted = Callable[[Finding], bool]  # whether the policy has a plan for this finding


class JobFaultHandling(NamedTuple):
    """Handles findings that are a job's own fault. `has`: an open incident of the job has it.

    `takes`: the incident takes it now.
    """

    has: Callable[[Finding], bool]
    takes: Callable[[Finding], bool]


NOT_OF_JOBS = JobFaultHandling(lambda _: False, lambda _: False)


def absorb_finding(
    state: ClusterState,
    finding: Finding,
    now: float,
    wanted: Wanted,
    *,
    current: bool = False,
    again_after_s: float = COUNTS_S,
    of_jobs: JobFaultHandling = NOT_OF_JOBS,
) -> None:
    """Take in one reported finding: store it, audit what is new, and let it join or open an incident.

    `current`: the node asserts it now, whatever was reported before. `again_after_s`: how long an operator's settlement
    counts. `of_jobs`: the findings that concern the job and not the node.
    """
    before = state.findings.get(finding.id)
    if before is not None and before.node != finding.node:
        _refuse_foreign_finding(state, finding.node, finding.id, before.node, now)
        return
    cleared = before is not None and before.cleared_at is not None
    if before == finding or (cleared and finding.active and not current):
        return  # nothing new, or a late copy of a cleared finding
    state.put_finding(finding)
    incident = state.incident_of(finding.node)
    _append_finding_audit(state, before, finding, now, incident)
    repeated = _record_occurrence(state, before, finding, now)
    info = finding.severity is Severity.INFO
    if not finding.active and not info:
        state.settled.pop(finding.id, None)
        return
    more_severe = before is not None and finding.severity.rank > before.severity.rank
    if not more_severe and of_jobs.has(finding):
        return
    since = "" if more_severe else _reopening_text(state, before, finding, now, again_after_s)
    if since is None:
        return
    if more_severe or since or (before is not None and info and repeated):
        state.settled.pop(finding.id, None)
    if finding.id not in state.settled and of_jobs.takes(finding):
        return
    if incident is not None:
        _join_incident(state, incident, finding, news=more_severe or bool(since), since=since)
    elif finding.id not in state.settled and (not info or wanted(finding)):
        _open_incident(state, finding, now, since)


def _reopening_text(
    state: ClusterState, before: Finding | None, finding: Finding, now: float, again_after_s: float
) -> str | None:
    """Return how long after its settlement a finding came again; empty without one, None if it still counts."""
    word = state.settled.get(finding.id)
    if word is None or not word.said:
        return ""
    since = reopen_rules.reopening_delay_text(state, word, before, finding, now, again_after_s)
    if not since:
        return None
    text = f"{finding.kind} on {finding.node}, {finding.component}, {since}"
    incident = state.incident_of(finding.node)
    state.note(now, "finding_again", text, node=finding.node, incident=incident, injected=finding.injected)
    return since


def select_own_findings(state: ClusterState, node: str, findings: Iterable[Finding], now: float) -> Iterator[Finding]:
    """Select a node's findings about itself. Findings about another node are ignored.

    Findings beyond the limit are counted as one occurrence: the journal has them, and one node must not fill the
    memory.
    """
    beyond: list[Finding] = []
    for finding in findings:
        known = state.findings.get(finding.id)
        if is_concluded(finding) or (known is not None and is_concluded(known)):
            _refuse_foreign_finding(state, node, finding.id, "the controller", now)
        elif finding.node != node:
            _refuse_foreign_finding(state, node, finding.id, finding.node, now)
        elif known is None and not _has_finding_room(state, finding):
            beyond.append(finding)
        else:
            yield finding
    if beyond:
        _count_excess_findings(state, node, beyond, now)


def _has_finding_room(state: ClusterState, finding: Finding) -> bool:
    reacts = finding.active and finding.severity is not Severity.INFO
    return len(state.findings_on(finding.node)) < KNOWN_MAX * (1 + reacts)


def _count_excess_findings(state: ClusterState, node: str, beyond: list[Finding], now: float) -> None:
    injected = all(finding.injected for finding in beyond)
    state.remember(Occurrence(now, OVERFLOW, node, count=len(beyond), injected=injected))
    text = f"{node} has reported more than {KNOWN_MAX} findings within the hour; {len(beyond)} more are counted but not stored"
    state.note(now, "findings_counted", f"{text}, the first is {beyond[0].kind}", node=node, injected=injected)


def _refuse_foreign_finding(state: ClusterState, node: str, finding_id: str, whose: str, now: float) -> None:
    text = f"{node} reports finding {finding_id}, which belongs to {whose}; ignored"
    state.note(now, "finding_refused", text, node=node)


def _record_occurrence(state: ClusterState, before: Finding | None, finding: Finding, now: float) -> bool:
    """Count a new finding at the time it reports, also if late, unless that time is implausible."""
    times = finding.count - (before.count if before is not None else 0)
    if times <= 0:
        return False
    at = finding.last_seen if now - WINDOW_MAX_S < finding.last_seen <= now else now
    jobs, width = state.jobs_on(finding.node), state.widest_job_on(finding.node)
    component = finding.component.key
    kind = finding.kind if state.history.has_room(finding.node, finding.kind) else OVERFLOW
    state.remember(Occurrence(at, kind, finding.node, component, jobs, width, times, injected=finding.injected))
    return True


def clear_unasserted(state: ClusterState, node: str, asserted: set[str], now: float) -> None:
    """Clear findings that the node no longer asserts: it re-asserts its whole state, so a missing finding is news."""
    for finding in state.active_on(node):
        if finding.id not in asserted and not is_concluded(finding):
            absorb_finding(state, finding.cleared(now, "no longer reported by the node"), now, lambda _: False)


def open_missing_incidents(state: ClusterState, now: float) -> None:
    """Open incidents for active findings that no operator has settled and that have none."""
    unanswered = [
        f
        for f in state.findings.values()
        if f.active and f.severity is not Severity.INFO and f.id not in state.settled and not state.incident_of(f.node)
    ]
    for finding in sorted(unanswered, key=lambda f: (f.first_seen, f.id)):
        if state.incident_of(finding.node) is None:
            _open_incident(state, finding, now)


def forget_old_findings(state: ClusterState, now: float) -> None:
    """Drop inactive findings that no open incident needs and that are no longer context."""
    needed = {f for incident in state.incidents.values() for f in incident.findings}
    old = [
        f.id
        for f in state.findings.values()
        if not f.active and f.id not in needed and now - last_news_time(f) > PRESENT_MAX_S
    ]
    for finding_id in old:
        state.forget_finding(finding_id)


def last_news_time(finding: Finding) -> float:
    """Return when a finding was last news."""
    return max(finding.last_seen, finding.cleared_at or 0.0)


def _append_finding_audit(
    state: ClusterState, before: Finding | None, finding: Finding, now: float, incident: Incident | None
) -> None:
    data: Facts = {
        "finding": finding.id,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "count": finding.count,
    }
    if before is None:
        kind, text = "finding_raised", f"{finding.kind} on {finding.node}, {finding.component}: {finding.summary}"
        data = {
            **finding.evidence,
            **data,
            "first_seen": finding.first_seen,
        }  # ours last: a node may use any name for a fact
    elif before.active and not finding.active:
        kind, text = "finding_cleared", f"{finding.kind} on {finding.node} cleared: {finding.cleared_by}"
    elif before.severity is not finding.severity:
        was = before.severity.value
        kind, text = "finding_changed", f"{finding.kind} on {finding.node} is now {finding.severity.value} (was {was})"
    else:
        return
    state.note(now, kind, text, node=finding.node, incident=incident, injected=finding.injected, data=data)


def _join_incident(state: ClusterState, incident: Incident, finding: Finding, *, news: bool, since: str = "") -> None:
    """Add a finding to an incident.

    `news`: it is new there, or more severe than before; the current decision does not cover it.
    """
    if len(incident.findings) >= _join_limit(finding.severity) and not (news and finding.id in incident.findings):
        return  # still recorded and counted; an incident that stays open for weeks must stay readable
    if news and incident.state is IncidentState.OPEN and incident.plan:  # the plan's messages are outdated
        incident = replace(incident, rule="", answer=None, plan=(), told=(), outcome="")
        state.put_incident(incident)
    if news and finding.id in incident.findings[: incident.answered]:
        incident = replace(
            incident, findings=tuple(f for f in incident.findings if f != finding.id), answered=incident.answered - 1
        )
    if (news or finding.id not in incident.findings) and _outranks_all(finding, state.findings_of(incident)):
        incident = replace(incident, title=_incident_title(finding, since))
        state.put_incident(incident)
    if finding.id not in incident.findings:
        findings = (*incident.findings, finding.id)
        real = not finding.injected and finding.severity is not Severity.INFO  # a drill must not hide a real fault
        injected = incident.injected and not real
        state.put_incident(replace(incident, findings=findings, injected=injected, again=since or incident.again))


def _outranks_all(finding: Finding, others: Iterable[Finding]) -> bool:
    """Return whether it is more severe than all of these.

    Cleared ones count: the plan that cleared them is still about them.
    """
    if finding.severity is Severity.INFO:
        return False
    return _severity_key(finding) > max((_severity_key(f) for f in others if f.id != finding.id), default=(0, False))


def _severity_key(finding: Finding) -> tuple[int, bool]:
    return finding.severity.rank, not finding.injected  # as severe as a drill, but real


def _incident_title(finding: Finding, since: str = "") -> str:
    what = f"{finding.kind} on {finding.component}"
    return f"{what}, {since}: {finding.summary}"[:TITLE_MAX] if since else f"{what}: {finding.summary}"[:TITLE_MAX]


def _join_limit(severity: Severity) -> int:
    return {Severity.INFO: JOINED_MAX, Severity.FATAL: FATAL_JOINED_MAX}.get(severity, REACTING_JOINED_MAX)


def _newest_findings(context: list[Finding]) -> list[Finding]:
    """Return as many as may join, in order."""
    kept: list[Finding] = []
    for finding in reversed(context):
        if len(kept) < _join_limit(finding.severity):
            kept.append(finding)
    return kept[::-1]


def _open_incident(state: ClusterState, finding: Finding, now: float, since: str = "") -> None:
    context = sorted(
        (f for f in state.findings_on(finding.node) if f.id != finding.id and now - f.last_seen <= CONTEXT_S),
        key=lambda f: (f.first_seen, f.id),
    )
    context = _newest_findings([f for f in context if f.id not in state.settled])
    cause = hashlib.sha256(f"{finding.id}\x1f{now!r}".encode()).hexdigest()
    worst = max([finding, *(f for f in context if f.active)], key=_severity_key)
    incident = Incident(
        id=f"inc-{cause[:12]}",
        node=finding.node,
        title=_incident_title(worst, since if worst is finding else ""),
        opened_at=now,
        findings=(*(f.id for f in context), finding.id),
        again=since,
        injected=all(f.injected for f in (*context, finding) if f.severity is not Severity.INFO or f is finding),
    )
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {incident.node}: {incident.title}", incident=incident)

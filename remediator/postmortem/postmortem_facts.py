"""Builds the content of a post-mortem from an incident's history. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from remediator.model.journal_records import Incident
from remediator.postmortem.evidence_charts import build_evidence_charts
from remediator.postmortem.incident_cost import affected_jobs, compute_cost, incident_spans
from remediator.postmortem.incident_history import IncidentHistory
from remediator.postmortem.postmortem_document import (
    POSTMORTEM_VERSION,
    ActionTaken,
    DecisionRow,
    EvidenceRow,
    FindingRow,
    JobHit,
    LogLine,
    PostMortem,
    RankRow,
    TimelineEntry,
)
from remediator.postmortem.root_cause import find_root_cause, list_follow_ups
from vocabulary.messages.evidence_bundle import EvidenceBundle, RankEvidence

TIMELINE_MAX = 1000
LINES_BEFORE_S, LINES_AFTER_S, LINES_MAX = 120.0, 60.0, 60
RANKS_MAX = 64
LAST_STEPS = 20  # their median is a rank's step time


def build_post_mortem(story: IncidentHistory) -> PostMortem:
    """Build the whole post-mortem of the incident."""
    incident, hit = story.incident, affected_jobs(story)
    bundle = _closest_bundle(story)
    mark_at = incident.opened_at if story.first_seen is None else story.first_seen
    timeline = _timeline_entries(story)
    return PostMortem(
        version=POSTMORTEM_VERSION,
        incident=incident.id,
        node=incident.node,
        title=incident.title,
        summary=summarize_incident(story, hit),
        state=incident.state.value,
        outcome=incident.outcome,
        rule=incident.rule,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at,
        as_of=story.ended_at if story.over else story.as_of,
        injected=incident.injected,
        cause=find_root_cause(story),
        cost=compute_cost(story, hit),
        spans=incident_spans(story),
        jobs=hit,
        actions=_action_rows(story),
        follow_ups=list_follow_ups(story),
        findings=_finding_rows(story),
        decisions=_decision_rows(story),
        timeline=timeline[:TIMELINE_MAX],
        timeline_left_out=max(0, len(timeline) - TIMELINE_MAX),
        charts=build_evidence_charts(bundle, story.findings, mark_at) if bundle else (),
        kernel_lines=_kernel_lines(bundle, mark_at) if bundle else (),
        ranks=tuple(_rank_row(rank) for rank in bundle.ranks[:RANKS_MAX]) if bundle else (),
        evidence=tuple(_evidence_row(each) for each in story.evidence),
    )


def summarize_incident(story: IncidentHistory, hit: tuple[JobHit, ...]) -> str:
    """Summarize the incident in one paragraph."""
    return " ".join(sentence for sentence in _summary_sentences(story, hit) if sentence)


def _summary_sentences(story: IncidentHistory, hit: tuple[JobHit, ...]) -> Iterator[str]:
    incident, culprit = story.incident, story.culprit
    if incident.injected:
        yield "This was a test fault."
    if culprit is None:
        yield f"{incident.node} had a fault; its findings are no longer stored."
    else:
        others = len(story.findings) - 1
        also = f", and {others} more {'finding' if others == 1 else 'findings'}" if others else ""
        yield f"{incident.node} reported {culprit.kind} on {culprit.component}{also}: {_end_with_period(culprit.summary)}"
    if story.decisions:
        last = story.decisions[-1]
        yield f"Rule {last.rule or 'none'} answered '{last.answer.value}'."
    for job in hit:
        where = f"{len(job.nodes)} {'node' if len(job.nodes) == 1 else 'nodes'}"
        at = f" at step {job.step}" if job.step is not None else ""
        yield f"Job {job.job}, on {where}, {job.how}{at}."
    if story.isolated is None:
        yield f"{incident.node} was not taken out of service."
    elif story.isolated[1] is None:
        yield f"{incident.node} was taken out of service and has not returned."
    else:
        yield f"{incident.node} was taken out of service and returned."
    yield f"Outcome: {_end_with_period(incident.outcome)}" if incident.outcome else _incident_state_sentence(incident)


def _incident_state_sentence(incident: Incident) -> str:
    return f"The incident is {incident.state.value}."


def _end_with_period(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _closest_bundle(story: IncidentHistory) -> EvidenceBundle | None:
    """Return the first bundle of the node itself, which covers the minutes before the fault.

    Otherwise the first of any.
    """
    own = [bundle for bundle in story.evidence if bundle.node == story.incident.node]
    return min(own or story.evidence, key=lambda bundle: (bundle.taken_at, bundle.order), default=None)


def _timeline_entries(story: IncidentHistory) -> tuple[TimelineEntry, ...]:
    seen = [
        TimelineEntry(f.first_seen, "seen", f.node, f"{f.kind} on {f.component} for the first time: {f.summary}")
        for f in story.findings
    ]
    told = [TimelineEntry(event.at, event.kind, event.actor, event.text) for event in story.events]
    return tuple(sorted([*seen, *told], key=lambda entry: entry.at))


def _finding_rows(story: IncidentHistory) -> tuple[FindingRow, ...]:
    return tuple(
        FindingRow(
            kind=f.kind,
            component=str(f.component),
            severity=f.severity.value,
            summary=f.summary,
            first_seen=f.first_seen,
            count=f.count,
            cleared_by=f.cleared_by,
            injected=f.injected,
        )
        for f in sorted(story.findings, key=lambda f: (f.first_seen, f.id))
    )


def _decision_rows(story: IncidentHistory) -> tuple[DecisionRow, ...]:
    return tuple(
        DecisionRow(at=d.at, answer=d.answer.value, rule=d.rule, reason=d.reason, policy=d.policy, guards=d.guards)
        for d in story.decisions
    )


def _action_rows(story: IncidentHistory) -> tuple[ActionTaken, ...]:
    return tuple(
        ActionTaken(
            verb=a.verb,
            node=a.node,
            state=a.state.value,
            planned_at=a.planned_at,
            finished_at=a.finished_at,
            detail=a.detail,
        )
        for a in sorted(story.actions, key=lambda a: (a.planned_at, a.id))
    )


def _kernel_lines(bundle: EvidenceBundle, mark_at: float) -> tuple[LogLine, ...]:
    """Return the lines around the moment, limited to those closest to it."""
    near = [line for line in bundle.kernel_lines if -LINES_BEFORE_S <= line.at - mark_at <= LINES_AFTER_S]
    closest = sorted(near, key=lambda line: (abs(line.at - mark_at), line.seq))[:LINES_MAX]
    return tuple(
        LogLine(line.at, line.text, line.facility == 0) for line in sorted(closest, key=lambda x: (x.at, x.seq))
    )


def _rank_row(rank: RankEvidence) -> RankRow:
    last = [step.seconds for step in rank.steps[-LAST_STEPS:]]
    return RankRow(
        job=rank.job,
        attempt=rank.attempt,
        rank=rank.rank,
        phase=rank.phase,
        step=rank.step,
        at=rank.at,
        alive=rank.alive,
        step_seconds=median(last) if last else None,
    )


def _evidence_row(bundle: EvidenceBundle) -> EvidenceRow:
    return EvidenceRow(
        order=bundle.order,
        node=bundle.node,
        from_at=bundle.from_at,
        taken_at=bundle.taken_at,
        series=len(bundle.series),
        kernel_lines=len(bundle.kernel_lines),
        ranks=len(bundle.ranks),
        missing=tuple(f"{missing.what}: {missing.why}" for missing in bundle.missing),
    )

"""Views of lemons and stragglers, from the controller's own findings. Pure."""

from __future__ import annotations

from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.detector_origin import CENTRE
from remediator.model.views_detectors import LemonView, StragglerView
from remediator.monitoring import lemon_findings as lemon_watch
from remediator.monitoring import straggler_findings
from vocabulary.finding import Evidence, Finding
from vocabulary.identity import ComponentKind

DAY_H = 24.0
NEXT = {
    "watch": "none yet; the node is watched",
    "test": "run a preflight before its next job",
    "repair": "repair it: take it out of service",
    "replace": "replace it: repairs did not help",
}
_STRAGGLER = f"{CENTRE}{straggler_findings.SOURCE}:"


def list_lemon_views(snapshot: StateSnapshot) -> tuple[LemonView, ...]:
    """Return suspected lemon nodes, the worst first."""
    incidents = {incident.node: incident.id for incident in snapshot.incidents.values()}
    found = [
        _build_lemon_view(finding, snapshot, incidents.get(finding.node, ""))
        for finding in snapshot.findings.values()
        if finding.active and finding.origin == lemon_watch.ORIGIN
    ]
    return tuple(sorted(found, key=lambda each: (-each.score, each.node)))


def _build_lemon_view(finding: Finding, snapshot: StateSnapshot, incident: str) -> LemonView:
    told, record = finding.evidence, snapshot.nodes.get(finding.node)
    advice = str(told.get("advice", ""))
    return LemonView(
        node=finding.node,
        score=_evidence_number(told, "probability"),
        state=finding.code,
        failures=int(_evidence_number(told, "incidents")),
        hours=_evidence_number(told, "service_d") * DAY_H,
        why=finding.summary,
        next_step=NEXT.get(advice, advice),
        since=finding.first_seen,
        at=finding.last_seen,
        jobs=tuple(dict.fromkeys(ref.job for ref in record.jobs)) if record is not None else (),
        incident=incident,
    )


def list_straggler_views(snapshot: StateSnapshot, roster: ReportRegistry) -> tuple[StragglerView, ...]:
    """Return what slows jobs down now, the slowest first."""
    incidents = {name: incident.id for incident in snapshot.incidents.values() for name in incident.findings}
    found = [
        _build_straggler_view(finding, roster, incidents.get(finding.id, ""))
        for finding in snapshot.findings.values()
        if finding.active and finding.origin.startswith(_STRAGGLER)
    ]
    return tuple(sorted(found, key=lambda each: (-each.excess, each.job, each.node)))


def _build_straggler_view(finding: Finding, roster: ReportRegistry, incident: str) -> StragglerView:
    told = finding.evidence
    job, attempt = str(told.get("job", "")), int(_evidence_number(told, "attempt"))
    ranks = tuple(int(rank) for rank in str(told.get("ranks", "")).split(", ") if rank.isdecimal())
    blamed = finding.component.kind is not ComponentKind.RANK
    entry = roster.get(finding.node)
    stages = [
        each.pipeline_stage
        for each in (entry.ranks if entry is not None else ())
        if ranks and each.rank == ranks[0] and (each.job, each.attempt) == (job, attempt)
    ]
    return StragglerView(
        job=job,
        attempt=attempt,
        kind=finding.code,
        verdict=finding.summary,
        since=finding.first_seen,
        at=finding.last_seen,
        node=finding.node if blamed else "",
        rank=ranks[0] if ranks else None,
        ranks=ranks,
        stage=stages[0] if stages and stages[0] >= 0 else None,
        excess=_evidence_number(told, "slowdown"),
        confidence=_evidence_number(told, "confidence"),
        incident=incident,
    )


def _evidence_number(told: Evidence, name: str) -> float:
    value = told.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0

"""The hazard of a job: the sum over its nodes, each as likely to fail as a usual one, times what is known of it. Pure.

The factors say how soon a node fails whose usual time between failures is nine months: one that was given back fails
again within a day in 22 of 100 cases, within four weeks in 42 (published for a fleet that trains language models);
the others are ours, to be replaced by measurements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from remediator.model.records import NodeRecord
from remediator.model.rules import NodeState
from vocabulary.finding import Finding, Severity
from vocabulary.hazard import JobHazard, NodeRisk
from vocabulary.identity import ComponentKind

NODE_MTBF_H = 6500.0  # 3.8 failures in 1000 node-days, the middle of what three fleets published
VALID_S = 900.0  # a centre that is away for longer is no reason to believe old numbers
DAY_S = 86400.0

# -ln(0.78) in a day, and ln(0.78/0.58) in the 27 days after it, against 1 in 271 usual days.
RETURNED_LATELY, RETURNED_SINCE = 67.0, 3.0
LATELY_S, MEMORY_S = DAY_S, 28 * DAY_S
OF_FINDING = {
    Severity.FATAL: 3000.0,  # within two hours
    Severity.ERROR: 300.0,  # within a day
    Severity.UNCLASSIFIED: 30.0,
    Severity.WARNING: 10.0,  # within a month
}
NOT_THE_NODE = {ComponentKind.RANK, ComponentKind.AGENT}  # a job's own trouble, or ours, breaks no hardware
RISKS_SHOWN = 16


def job_hazard(
    job: str,
    nodes: Collection[NodeRecord],
    findings: Mapping[str, Iterable[Finding]],
    now: float,
    node_mtbf_h: float = NODE_MTBF_H,
) -> JobHazard | None:
    """The hazard of the newest attempt of a job; None if it runs nowhere.

    Args:
        job: its name.
        nodes: all that may hold ranks of it.
        findings: by node; those that are not active are passed over.
        now: UTC seconds.
        node_mtbf_h: hours between failures of a usual node.
    """
    attempt = max((ref.attempt for node in nodes for ref in node.jobs if ref.job == job), default=None)
    if attempt is None:
        return None
    own = [node for node in nodes if any(ref.job == job and ref.attempt == attempt for ref in node.jobs)]
    risks = [_risk(node, findings.get(node.node, ()), now) for node in own]
    per_s = sum(risk.factor for risk in risks) / (node_mtbf_h * 3600)
    worst = sorted((risk for risk in risks if risk.factor > 1), key=lambda risk: (-risk.factor, risk.node))
    return JobHazard(
        job=job,
        attempt=attempt,
        nodes=len(own),
        per_s=per_s,
        at=now,
        valid_s=VALID_S,
        risks=tuple(worst[:RISKS_SHOWN]),
    )


def _risk(node: NodeRecord, findings: Iterable[Finding], now: float) -> NodeRisk:
    """The greatest of what is known counts: two signs of one fault are not two faults."""
    found = [
        (OF_FINDING[finding.severity], f"{finding.kind} ({finding.severity.value})")
        for finding in findings
        if finding.active and finding.severity in OF_FINDING and finding.component.kind not in NOT_THE_NODE
    ]
    if node.state is NodeState.PROBATION and now - node.since < LATELY_S:
        found.append((RETURNED_LATELY, "came back within the last day"))
    elif node.isolated_at is not None and now - node.isolated_at < MEMORY_S:
        found.append((RETURNED_SINCE, "was out of service within four weeks"))
    factor, why = max(found, default=(1.0, ""))
    return NodeRisk(node.node, factor, why)

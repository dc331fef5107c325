"""The hazard of a job: the sum over its nodes of the usual failure rate times a factor for what is known of the node.

Pure.

Factors are relative to a node with nine months between failures. A returned node fails again within a day in 22 of 100
cases, within four weeks in 42 (published for a fleet that trains language models); the other factors are our
assumptions, to be replaced by measurements (table in docs/explanation/checkpoint-interval.md). `choose_placement` uses
the same factors to take the nodes that are least likely to fail.
"""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from remediator.model.journal_records import NodeRecord
from remediator.model.rule_conditions import NodeState
from vocabulary.finding import Finding, Severity
from vocabulary.identity import ComponentKind
from vocabulary.messages.job_hazard import JobHazard, NodeRisk, Placement

NODE_MTBF_H = 6500.0  # 3.8 failures in 1000 node-days, the middle of what three fleets published
VALID_S = 900.0  # a controller that is down for longer must not make jobs believe old numbers
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
# A known kind goes before its severity. First match.
OF_KIND = (
    ("row_remap/spares", 30.0),  # the next worn row may be the last: an imminent ERROR
    ("row_remap/many", 20.0),
    ("ecc/sram_threshold", 300.0),
    ("throttle/hw_power_brake", 30.0),  # a power supply that brakes is about to fail
    ("throttle/*", 5.0),  # slow and hot, but rarely fatal
    ("infiniband/flapping", 50.0),  # a job of many nodes dies if one link is down for its time-out
    ("ethernet/flapping", 20.0),
    ("infiniband/congested", 1.0),  # caused by the neighbours' traffic
)
# Corrected errors: no failure, but the more frequent, the nearer. Each doubling counts once, at most four.
TRENDS = (
    "ecc/corrected", "edac/corrected", "pcie/corrected", "pcie_link/replays", "nvlink/*_errors",
    "infiniband/symbol_errors", "infiniband/flapping", "ethernet/flapping", "ethernet/errors",
)  # fmt: skip
TREND_MAX = 4.0
APPLICATION_XIDS = frozenset({"13", "31", "43", "45"})
# A cleared hardware Xid counts like a returned node: spread over a day, then over a week.
XID_TODAY, XID_THIS_WEEK, WEEK_S = 30.0, 5.0, 7 * DAY_S
NOT_THE_NODE = {ComponentKind.RANK, ComponentKind.AGENT}  # a job's own trouble, or the agent's, breaks no hardware
RISKS_SHOWN = 16


def newest_attempt_held(job: str, nodes: Iterable[NodeRecord]) -> int | None:
    """Return the attempt of a job that most nodes hold, the newest of several; None if it runs nowhere.

    The highest number alone proves nothing: one node may report an attempt that no other node knows.
    """
    held = Counter(ref.attempt for node in nodes for ref in set(node.jobs) if ref.job == job)
    return max(held, key=lambda attempt: (held[attempt], attempt), default=None)


def compute_job_hazard(
    job: str,
    nodes: Collection[NodeRecord],
    findings: Mapping[str, Iterable[Finding]],
    now: float,
    node_mtbf_h: float = NODE_MTBF_H,
    attempt: int | None = None,
) -> JobHazard | None:
    """Return the hazard of one attempt of a job; None if it runs nowhere.

    Args:
        job: its name.
        nodes: all that may hold ranks of it.
        findings: by node; inactive ones are ignored.
        now: UTC seconds.
        node_mtbf_h: hours between failures of a usual node.
        attempt: None: the one from `newest_attempt_held`.
    """
    if attempt is None:
        attempt = newest_attempt_held(job, nodes)
    own = [node for node in nodes if any(ref.job == job and ref.attempt == attempt for ref in node.jobs)]
    if attempt is None or not own:
        return None
    risks = [_node_risk(node, findings.get(node.node, ()), now) for node in own]
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


def choose_placement(
    wanted: int,
    free: Collection[NodeRecord],
    findings: Mapping[str, Iterable[Finding]],
    now: float,
    node_mtbf_h: float = NODE_MTBF_H,
) -> Placement | None:
    """Return the `wanted` nodes of `free` least likely to fail, by name among equals; None if there are too few.

    Advice only: the node's state decides whether it may take work. Arguments as in `compute_job_hazard`.
    """
    if not 0 < wanted <= len(free):
        return None
    risks = [_node_risk(node, findings.get(node.node, ()), now) for node in free]
    ordered = sorted(risks, key=lambda risk: (risk.factor, risk.node))
    usual_per_s = 1 / (node_mtbf_h * 3600)
    return Placement(
        chosen=tuple(risk.node for risk in ordered[:wanted]),
        avoided=tuple(risk for risk in ordered[wanted:][::-1] if risk.factor > 1)[:RISKS_SHOWN],
        per_s=sum(risk.factor for risk in ordered[:wanted]) * usual_per_s,
        per_s_at_random=sum(risk.factor for risk in risks) / len(risks) * wanted * usual_per_s,
    )


def lemon_factor(probability: float, multiplier: float) -> float:
    """Return the expected failure rate, relative to usual, of a node that is a lemon with `probability`.

    >>> lemon_factor(0.5, 31.0)
    16.0
    """
    if not (0 <= probability <= 1 and math.isfinite(multiplier)):
        return 1.0
    return max(1.0, 1 + probability * (multiplier - 1))


def _node_risk(node: NodeRecord, findings: Iterable[Finding], now: float) -> NodeRisk:
    """Return the largest factor: two symptoms of one fault are not two faults."""
    found = [sign for finding in findings if (sign := _finding_hazard(finding, now)) is not None]
    if node.state is NodeState.PROBATION and now - node.since < LATELY_S:
        found.append((RETURNED_LATELY, "returned to service within the last day"))
    elif node.isolated_at is not None and now - node.isolated_at < MEMORY_S:
        found.append((RETURNED_SINCE, "was out of service within four weeks"))
    factor, why = max(found, default=(1.0, ""))
    return NodeRisk(node.node, max(factor, 1.0), why)


def _finding_hazard(finding: Finding, now: float) -> tuple[float, str] | None:
    """Return (factor, text) of one finding; None if it does not predict failures of the node."""
    if finding.component.kind in NOT_THE_NODE:
        return None
    if not finding.active:
        return _cleared_finding_hazard(finding, now)
    if finding.check == "lemon":  # its evidence has the probability and the multiplier
        return _lemon_hazard(finding)
    if finding.severity not in OF_FINDING:
        return None
    factor = OF_FINDING[finding.severity]
    if finding.severity is Severity.WARNING:  # the check that raised a worse one has judged it
        factor = next((f for form, f in OF_KIND if fnmatch.fnmatchcase(finding.kind, form)), factor)
        if any(fnmatch.fnmatchcase(finding.kind, form) for form in TRENDS):
            factor *= min(1 + math.log2(max(finding.count, 1)), TREND_MAX)
    return factor, f"{finding.kind} ({finding.severity.value})"


def _lemon_hazard(finding: Finding) -> tuple[float, str] | None:
    probability, multiplier = (finding.evidence.get(name) for name in ("probability", "multiplier"))
    if not isinstance(probability, int | float) or not isinstance(multiplier, int | float):
        return None
    return lemon_factor(probability, multiplier), f"a lemon with probability {probability:.2f}"


def _cleared_finding_hazard(finding: Finding, now: float) -> tuple[float, str] | None:
    """A cleared Xid still raises the hazard of the days after it; a job's own does not."""
    if finding.check != "xid" or finding.code in APPLICATION_XIDS or finding.severity is Severity.INFO:
        return None
    age_s = now - finding.last_seen
    if age_s < DAY_S:
        return XID_TODAY, f"{finding.kind} within the last day"
    return (XID_THIS_WEEK, f"{finding.kind} within the last week") if age_s < WEEK_S else None

"""Builds the lemon detector's input from the nodes' history, and findings from its judgement. Pure.

A failure of a node is a decision of ours to isolate it, with the number of nodes of the job, by which the detector
shares the blame. A hang counts only if it led to that: a faulty program leaves the others waiting for rank 0, and so
for the node it usually runs on. What users see and no node reports is not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from remediator.detection.lemons import Advice, History, Judged, Kind, Mark, judge_lemons
from remediator.model.detector_origin import CENTRE
from remediator.model.journal_records import NodeRecord
from remediator.model.occurrence import Occurrence
from remediator.model.rule_conditions import NodeState
from remediator.monitoring.detector_findings import build_detector_finding
from remediator.state.cluster_state import ISOLATION, REPAIRED, RETURNED
from remediator.state.recent_failures import DRILLED, SUSPECTED
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind

ORIGIN = f"{CENTRE}lemon"
CHECK = "lemon"
KINDS = {
    SUSPECTED: Kind.FAILURE,
    ISOLATION: Kind.REMOVED,
    RETURNED: Kind.RETURNED,
    REPAIRED: Kind.REPAIRED,
    "failed/preflight": Kind.TEST_FAILED,
    "action/ticket": Kind.TICKET,
}
XID = "xid"
OWN_RULES = ("rule/lemon-suspected", "rule/lemon-to-be-tested", "rule/lemon-confirmed", "rule/straggler-to-be-tested")
NO_LONGER = "its history no longer suggests a lemon"
NOT_ITS_OWN = (*OWN_RULES, DRILLED)  # incidents that do not count against their node
_SAID = {
    Advice.WATCH: ("watched", Severity.INFO),
    Advice.TEST: ("suspected", Severity.WARNING),
    Advice.REPAIR: ("confirmed", Severity.ERROR),
    Advice.REPLACE: ("confirmed", Severity.ERROR),
}
_OUT = {NodeState.REPLACING, NodeState.RETIRED, NodeState.OPERATOR_HELD}
_HOST = Component(ComponentKind.HOST)
_Row = tuple[int, float, int, int, int, float]  # node, time, kind, job, code, nodes of the job


def build_lemon_findings(past: Iterable[Occurrence], nodes: Sequence[NodeRecord], now: float) -> list[Finding]:
    """Build the findings that the history supports now.

    Args:
        past: occurrences, in any order.
        nodes: all known nodes.
        now: UTC seconds.
    """
    fleet = [node for node in nodes if node.state is not NodeState.RETIRED]
    rows = _record_rows(past, fleet)
    if not rows:
        return []
    judged = judge_lemons(_build_node_history(rows, fleet), now, fleet_nodes=len(fleet))
    found = (_build_lemon_finding(number, node, judged, now) for number, node in enumerate(fleet))
    return [finding for finding in found if finding is not None]


def _record_rows(past: Iterable[Occurrence], fleet: Sequence[NodeRecord]) -> list[_Row]:
    past = sorted(past, key=lambda occurrence: occurrence.at)
    ours = {each.incident for each in past if each.kind in NOT_ITS_OWN}
    index = {node.node: number for number, node in enumerate(fleet)}
    jobs: dict[str, int] = {}
    rows: list[_Row] = []
    out_since: dict[int, float] = {}
    for each in past:
        number = index.get(each.node)
        kind, code = _record_kind(each.kind)
        if number is None or kind is None:
            continue
        if each.incident in ours and each.incident:  # our own suspicion, which must not feed itself, or a drill
            if kind is Kind.FAILURE:
                continue
            kind = Kind.CORDONED if kind is Kind.REMOVED else kind
        job = jobs.setdefault(each.jobs[0], len(jobs)) if each.jobs else -1
        size = float(each.job_nodes) if each.job_nodes else float("nan")
        rows.append((number, each.at, kind, job, code, size))
        if kind in (Kind.REMOVED, Kind.CORDONED):
            out_since[number] = each.at
        elif kind in (Kind.RETURNED, Kind.REPAIRED):
            out_since.pop(number, None)
    for number, since in out_since.items():  # an operator's release is not ours
        if not fleet[number].held and fleet[number].state not in _OUT:
            rows.append((number, max(fleet[number].since, since), Kind.RETURNED, -1, -1, float("nan")))
    return rows


def _record_kind(kind: str) -> tuple[Kind | None, int]:
    check, _, code = kind.partition("/")
    if check == XID:
        return (Kind.XID, int(code)) if code.isdecimal() and len(code) < 6 else (None, -1)
    return KINDS.get(kind), -1


def _build_node_history(rows: Sequence[_Row], fleet: Sequence[NodeRecord]) -> History:
    node, time, kind, job, code, size = (np.array(column) for column in zip(*rows, strict=True))
    return History(
        nodes=len(fleet),
        node=node.astype(np.int64),
        time=time.astype(np.float64),
        end=np.full(node.size, np.nan),
        kind=kind.astype(np.int64),
        job=job.astype(np.int64),
        user=np.full(node.size, -1, dtype=np.int64),
        code=code.astype(np.int64),
        size=size.astype(np.float64),
        named=np.ones(node.size, dtype=np.bool_),
        cohorts={
            name: _location_groups([node.places.of(name) for node in fleet]) for name in ("rack", "switch", "driver")
        },
    )


def _location_groups(places: Sequence[tuple[str, ...]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    names: dict[str, int] = {}
    return np.array([names.setdefault(each[0], len(names)) if each else -1 for each in places], dtype=np.int64)


def _build_lemon_finding(number: int, node: NodeRecord, judged: Judged, now: float) -> Finding | None:
    advice = judged.advice[number]
    if advice is Advice.NONE:
        return None
    code, severity = _SAID[advice]
    evidence: Evidence = {
        "probability": round(float(judged.probability[number]), 4),
        "multiplier": round(float(judged.multiplier[number]), 1),
        "advice": advice.value,
        "saved_gpu_h": round(float(judged.saved_gpu_h[number]), 1),
        "incidents": int(judged.incidents[number]),
        "blame": round(float(judged.blame[number]), 2),
        "service_d": round(float(judged.service_d[number]), 1),
        "repairs": int(judged.repairs[number]),
    }
    evidence |= {
        mark.name.lower(): round(float(judged.marks[number, mark]), 2)
        for mark in Mark
        if judged.marks[number, mark] > 0
    }
    words = (
        f"a lemon with probability {judged.probability[number]:.2f}: {evidence['incidents']} incidents in "
        f"{judged.service_d[number]:.0f} days of service; advice: {advice.value}"
    )
    return build_detector_finding((node.node, _HOST), (CHECK, code), ORIGIN, severity, words, now, evidence)

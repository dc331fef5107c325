"""What the centre itself concluded becomes findings of the nodes it is about, and a passed test disproves it. Pure.

A conclusion is an input like any other: it is in the journal, so that a replay needs no measurement to come to the same.
"""

from __future__ import annotations

from collections.abc import Callable

from remediator.incidents import finding_intake
from remediator.model.detector_origin import is_concluded
from remediator.model.pipeline_inputs import VerdictsReached
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding

PROVEN_BY_TEST = ("straggler", "hang")  # a lemon is what passes every test


def absorb_verdicts(
    state: ClusterState,
    item: VerdictsReached,
    wanted: Callable[[Finding], bool],
    again_after_s: float,
    of_jobs: finding_intake.JobFaultHandling = finding_intake.NOT_OF_JOBS,
) -> set[str]:
    """Take in conclusions as they stand now; returns the nodes they concern. What is about a node nobody knows is passed over."""
    touched = set()
    for finding in item.findings:
        if finding.node in state.nodes and is_concluded(finding):
            before = state.findings.get(finding.id)
            if before is not None and finding.active and not before.active:
                state.settled.pop(finding.id, None)  # it is back: what was done about it before did not end it
            finding_intake.absorb_finding(
                state, finding, item.at, wanted, current=True, again_after_s=again_after_s, of_jobs=of_jobs
            )
            touched.add(finding.node)
    return touched


def clear_disproved_verdicts(state: ClusterState, node: str, now: float) -> None:
    """The node has passed a test: what timing alone, or a stuck job, said of it no longer stands."""
    for finding in state.active_on(node):
        if is_concluded(finding) and finding.check in PROVEN_BY_TEST:
            finding_intake.absorb_finding(state, finding.cleared(now, "passed a preflight"), now, lambda _: False)

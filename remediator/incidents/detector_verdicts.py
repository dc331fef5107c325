"""Turns the controller's own conclusions into findings of their nodes; a passed test disproves them. Pure.

A conclusion is an input like any other: it is in the journal, so that a replay needs no measurements.
"""

from __future__ import annotations

from collections.abc import Callable

from remediator.incidents import finding_intake
from remediator.model.detector_origin import is_concluded
from remediator.model.pipeline_inputs import VerdictsReached
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding

PROVEN_BY_TEST = ("straggler", "hang", "sdc")  # not lemons: they pass every test


def absorb_verdicts(
    state: ClusterState,
    item: VerdictsReached,
    wanted: Callable[[Finding], bool],
    again_after_s: float,
    of_jobs: finding_intake.JobFaultHandling = finding_intake.NOT_OF_JOBS,
) -> set[str]:
    """Take in current conclusions; returns the nodes they concern. Conclusions about unknown nodes are ignored."""
    touched = set()
    for finding in item.findings:
        if finding.node in state.nodes and is_concluded(finding):
            before = state.findings.get(finding.id)
            if before is not None and finding.active and not before.active:
                state.settled.pop(finding.id, None)  # it is back: the earlier reaction did not end it
            finding_intake.absorb_finding(
                state, finding, item.at, wanted, current=True, again_after_s=again_after_s, of_jobs=of_jobs
            )
            touched.add(finding.node)
    return touched


def clear_disproved_verdicts(state: ClusterState, node: str, now: float) -> None:
    """Clear straggler, hang and sdc findings of a node that has passed a test."""
    for finding in state.active_on(node):
        if is_concluded(finding) and finding.check in PROVEN_BY_TEST:
            finding_intake.absorb_finding(state, finding.cleared(now, "passed a preflight"), now, lambda _: False)

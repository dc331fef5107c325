"""Signals about a node besides timing: its own findings, as independent evidence for a verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from remediator.detection.stragglers.signal_confirmation import JOBS_OWN_XIDS, LINK_ERRORS_MANY, MachineSignals
from vocabulary.finding import Finding, Severity
from vocabulary.identity import ComponentKind

XID_WITHIN_S = 3600.0
HELD_DOWN = ("throttle/*", "clocks/*")  # the node's own checks raise these only if they last
NARROW = ("pcie_link/*",)
LINK_SICK = ("infiniband/*", "ethernet/*", "nvlink/*", "pcie/*", "sxid/*")
NOT_SICK = ("infiniband/congested",)  # caused by the neighbours' traffic


def machine_signals(findings: Iterable[Finding], gpu: str, now: float) -> MachineSignals:
    """Return the signals about one culprit.

    Args:
        findings: the node's own, active or recent; without the controller's conclusions.
        gpu: UUID of the culprit's GPU, empty for the whole node or an unknown GPU.
        now: UTC seconds.
    """
    held_down = narrow = sick = False
    xids = set[int]()
    for finding in findings:
        if not _finding_concerns_gpu(finding, gpu):
            continue
        if finding.check == "xid":
            if finding.code.isdecimal() and (finding.active or now - finding.last_seen < XID_WITHIN_S):
                xids.add(int(finding.code))
        elif finding.active and finding.severity is not Severity.INFO:
            held_down |= _any_pattern_fits(finding.kind, HELD_DOWN)
            narrow |= _any_pattern_fits(finding.kind, NARROW)
            sick |= _any_pattern_fits(finding.kind, LINK_SICK) and not _any_pattern_fits(finding.kind, NOT_SICK)
    return MachineSignals(
        throttled=1.0 if held_down else None,
        xids=tuple(sorted(xids - JOBS_OWN_XIDS)),
        pcie_narrow=narrow or None,
        link_errors=2 * LINK_ERRORS_MANY if sick else None,  # its check raised it: above every usual rate
    )


def has_node_fault(findings: Iterable[Finding]) -> bool:
    """Return whether the node asserts a fault of its own hardware; faults of a job or of our agent do not count."""
    grave = {Severity.ERROR, Severity.FATAL}
    apart = {ComponentKind.RANK, ComponentKind.AGENT}
    return any(f.active and f.severity in grave and f.component.kind not in apart for f in findings)


def _finding_concerns_gpu(finding: Finding, gpu: str) -> bool:
    return finding.component.kind is not ComponentKind.GPU or not gpu or finding.component.name in ("", gpu)


def _any_pattern_fits(kind: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(kind, pattern) for pattern in patterns)

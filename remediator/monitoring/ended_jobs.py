"""Clears conclusions about jobs that have ended, except those that request a test that has not run yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from remediator.detection.stragglers.eject_break_even import EjectUrgency
from remediator.incidents.detector_verdicts import PROVEN_BY_TEST
from vocabulary.finding import Finding, Severity

UNTESTED_S = 86400.0
_ASKS_FOR_A_TEST = {EjectUrgency.NEXT_CHECKPOINT.value, EjectUrgency.NOW.value}


def findings_of_ended_jobs(conclusions: Iterable[Finding], now: float) -> tuple[Finding, ...]:
    """Return which of the controller's findings about jobs without living ranks are to be cleared now (UTC s)."""
    of_jobs = [finding for finding in conclusions if finding.active and finding.check in PROVEN_BY_TEST]
    return tuple(f.cleared(now, why) for f in of_jobs if (why := _clearing_reason(f, now)))


def _clearing_reason(finding: Finding, now: float) -> str:
    waits = finding.severity is Severity.ERROR or finding.evidence.get("level") in _ASKS_FOR_A_TEST
    if not waits:
        return "the job has ended"
    return "the job has ended, and the node was not tested within a day" if now - finding.last_seen > UNTESTED_S else ""

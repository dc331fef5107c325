"""The controller's own findings: their ids, and which of them are news. Pure.

An id is derived from the subject, the check and the attempt of the job, so that two leaders produce the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from remediator.model.detector_origin import CENTRE
from remediator.model.journal_records import JobRef
from vocabulary.finding import Evidence, Finding, Severity, finding_id
from vocabulary.identity import Component

SAID_AGAIN_S = 900.0  # interval at which changed figures are submitted; changes that decide are submitted at once
DECIDES = ("level", "confirmed", "advice")  # evidence that rules match
SUMMARY_MAX = 300


def detector_origin(source: str, job: JobRef) -> str:
    """Return the origin of findings about one attempt of a job, by detector."""
    return f"{CENTRE}{source}:{job.job}.{job.attempt}"


def build_detector_finding(
    about: tuple[str, Component],
    kind: tuple[str, str],
    origin: str,
    severity: Severity,
    words: str,
    now: float,
    evidence: Evidence,
) -> Finding:
    """Build a finding of the controller.

    Args:
        about: node and component.
        kind: check and code.
        origin: from `detector_origin`.
        severity: its severity.
        words: the text for operators.
        now: UTC seconds.
        evidence: the numbers.
    """
    (node, component), (check, code) = about, kind
    return Finding(
        id=finding_id(node, check, code, component, origin),
        node=node,
        check=check,
        code=code,
        component=component,
        severity=severity,
        summary=words[:SUMMARY_MAX],
        first_seen=now,
        last_seen=now,
        origin=origin,
        level=True,
        evidence=evidence,
    )


def select_finding_changes(
    known: Iterable[Finding],
    wanted: Iterable[Finding],
    now: float,
    over: Callable[[Finding], str],
    as_of: float,
) -> tuple[Finding, ...]:
    """Select the findings to submit so that the stored ones match `wanted`.

    Args:
        known: the findings that this detector may have made before, including cleared ones.
        wanted: what holds now.
        now: UTC seconds.
        over: gives the reason to clear one that is no longer wanted; an empty one keeps it.
        as_of: when the newest data was seen (UTC s); a finding disproved since then is not submitted again.
    """
    before = {finding.id: finding for finding in known}
    told = [each for each in (_finding_change(before, finding, now, as_of) for finding in wanted) if each is not None]
    holds = {finding.id for finding in wanted}
    ended = [
        finding.cleared(now, why)
        for finding in before.values()
        if finding.active and finding.id not in holds and (why := over(finding))
    ]
    return (*told, *ended)


def _finding_change(before: Mapping[str, Finding], finding: Finding, now: float, as_of: float) -> Finding | None:
    known = before.get(finding.id)
    if known is None:
        return finding
    if not known.active:
        if known.cleared_at is not None and known.cleared_at >= as_of:
            return None
        return replace(finding, count=known.count + 1)
    same = known.severity is finding.severity and _deciding_evidence(known) == _deciding_evidence(finding)
    if same and now - known.last_seen < SAID_AGAIN_S:
        return None
    return replace(finding, first_seen=known.first_seen, count=known.count)


def _deciding_evidence(finding: Finding) -> tuple[str | int | float | bool | None, ...]:
    return tuple(finding.evidence.get(name) for name in DECIDES)

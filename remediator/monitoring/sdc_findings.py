"""Findings on GPUs that compute wrong results while they train, from the digests that their ranks report. Pure.

A rank's digests are of its own device only, and its user writes them: a false report blames the device it runs on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from remediator.model.journal_records import JobRef
from remediator.monitoring.detector_findings import build_detector_finding, detector_origin
from remediator.monitoring.digest_vote import DigestVote, Place, locate_device, vote_on_digests
from remediator.monitoring.step_windows import NodeRankReport
from remediator.monitoring.straggler_findings import HOST, job_component
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import ProductDigests

SOURCE = "sdc"
MINORITY, CONTRADICTION, UNDECIDED = "minority", "contradiction", "undecided"
TRANSIENTS_MAX = 1  # one flipped bit may be chance; a device that does it twice is faulty
NO_LONGER_OPEN = "its devices agree now, or the vote names one"
NAMED_MAX = 16

Digests = dict[tuple[Place, int], ProductDigests]


def collect_digests(reports: Iterable[NodeRankReport]) -> Digests:
    """Return the digests of living ranks, by device and rank."""
    return {
        (locate_device(report.node, rank.gpu, rank.rank), rank.rank): rank.digests
        for report in reports
        for rank in report.ranks
        if rank.alive and rank.digests is not None
    }


def build_sdc_findings(ref: JobRef, digests: Digests, now: float) -> list[Finding]:
    """Build the findings that the digests of a job's ranks support."""
    vote = vote_on_digests(digests)
    found = [
        _contradiction_finding(ref, place, rank, told, now)
        for (place, rank), told in digests.items()
        if told.contradictions or told.transients
    ]
    found += _minority_findings(ref, vote, {place for place, _ in digests}, now)
    if vote.undecided:
        found.append(_undecided_finding(ref, vote, now))
    return list({finding.id: finding for finding in sorted(found, key=lambda each: each.severity.rank)}.values())


def sdc_end_reason(finding: Finding) -> str:
    """Return why an earlier finding no longer holds. Empty for a named device: only a test clears it."""
    return NO_LONGER_OPEN if finding.code == UNDECIDED else ""


def _contradiction_finding(ref: JobRef, place: Place, rank: int, told: ProductDigests, now: float) -> Finding:
    sure = told.contradictions > 0 or told.transients > TRANSIENTS_MAX
    evidence = _describe_job(ref, [rank]) | {
        "contradictions": told.contradictions,
        "transients": told.transients,
        "platform": told.platform,
    }
    if told.last_good_step >= 0:
        evidence["last_good_step"] = told.last_good_step
    words = f"{_describe_device(place, [rank])} computed a product of {ref.job} differently than before"
    end = "again when it was repeated" if told.contradictions else f"{told.transients} times" if sure else "once"
    return _build(
        ref, place, CONTRADICTION, (Severity.ERROR if sure else Severity.WARNING, f"{words}, {end}"), now, evidence
    )


def _minority_findings(ref: JobRef, vote: DigestVote, voters: Iterable[Place], now: float) -> list[Finding]:
    of_node: dict[str, set[Place]] = {}
    for place in voters:
        of_node.setdefault(place.node, set()).add(place)
    found: list[Finding] = []
    for node, places in of_node.items():
        lost = {place: ranks for place, ranks in vote.outvoted.items() if place.node == node}
        if len(lost) > 1 and places == lost.keys():  # not so many GPUs fail at once: they have the host in common
            lost = {Place(node, ""): sorted(rank for ranks in lost.values() for rank in ranks)}
        for place, ranks in lost.items():
            words = f"{_describe_device(place, ranks)} computes other products in {ref.job} than those of its kind"
            found.append(_build(ref, place, MINORITY, (Severity.ERROR, words), now, _describe_job(ref, ranks)))
    return found


def _undecided_finding(ref: JobRef, vote: DigestVote, now: float) -> Finding:
    places = list(vote.undecided)
    devices = ", ".join(f"{place.node} {place.gpu or f'rank {place.rank}'}" for place in islice(places, NAMED_MAX))
    ranks = [rank for each in vote.undecided.values() for rank in each]
    words = f"GPUs of one kind compute different products in {ref.job}, and the vote does not show which are wrong: {devices}"
    evidence = _describe_job(ref, ranks) | {"suspects": devices}
    kind = (SOURCE, UNDECIDED)
    about = (places[0].node, job_component(ref))
    return build_detector_finding(about, kind, detector_origin(SOURCE, ref), Severity.WARNING, words, now, evidence)


def _build(ref: JobRef, place: Place, code: str, said: tuple[Severity, str], now: float, evidence: Evidence) -> Finding:
    component = Component(ComponentKind.GPU, place.gpu) if place.gpu else HOST
    severity, words = said
    about = (place.node, component)
    return build_detector_finding(about, (SOURCE, code), detector_origin(SOURCE, ref), severity, words, now, evidence)


def _describe_device(place: Place, ranks: list[int]) -> str:
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_format_ranks(ranks)}"
    return f"the {'GPU' if place.gpu else 'device'} of {who}"


def _describe_job(ref: JobRef, ranks: list[int]) -> Evidence:
    return {"job": ref.job, "attempt": ref.attempt, "ranks": _format_ranks(ranks)}


def _format_ranks(ranks: list[int]) -> str:
    return ", ".join(map(str, sorted(ranks)[:NAMED_MAX]))

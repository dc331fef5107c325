"""Turns the conclusion of a job's passes into findings: on the culprit, or on the job when no node is at fault. Pure.

One signal is a suspicion. It becomes an error, which may isolate the node, when the node's own findings agree and
ejecting it costs the job less than keeping it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from remediator.detection.stragglers.benign_causes import SLOW_NODE_POSSIBLE
from remediator.detection.stragglers.eject_break_even import EjectUrgency, compute_eject_break_even, eject_urgency
from remediator.detection.stragglers.peer_comparison import PEERS_MIN
from remediator.detection.stragglers.signal_confirmation import ConfirmationState, MachineSignals, confirm_culprit
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict
from remediator.model.journal_records import JobRef
from remediator.monitoring.analysis_passes import PassConclusion
from remediator.monitoring.detector_findings import SUMMARY_MAX, build_detector_finding, detector_origin
from remediator.monitoring.heat_watch import HOT_SINCE, OWN_AGREES, USUAL, HeatSuspect
from remediator.monitoring.step_windows import RankPlacement
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind

SOURCE = "straggler"
NO_LONGER_SLOW = "no longer slower than its peers"
LEAVE_COST_S = 600.0  # of the whole job: checkpoint, restart, lost work; break-even is 110 minutes at 10 %
RANKS_NAMED = 16
JOB_CHARS_MAX = 200  # healthd's limit for a job name
HOST = Component(ComponentKind.HOST)
_URGENT = {EjectUrgency.NEXT_CHECKPOINT, EjectUrgency.NOW}


class StragglerContext(NamedTuple):
    """What a job's judgement needs besides its timing.

    `witness` returns the signals for (node, GPU UUID); `before` holds earlier conclusions, perhaps of another leader;
    `hot` is the GPU whose heat coincides with the job's slowdown.
    """

    ref: JobRef
    seats: Mapping[int, RankPlacement]
    witness: Callable[[str, str], MachineSignals]
    before: Collection[Finding] = ()
    hot: HeatSuspect | None = None


def build_straggler_findings(
    job: StragglerContext, conclusion: PassConclusion | None, since: Mapping[int, float], now: float
) -> list[Finding]:
    """Build the findings that hold for the job now; empty if no rank stands out.

    Args:
        job: the job whose passes these are.
        conclusion: the conclusion of its passes; a culprit in it outweighs the heat of another GPU.
        since: by rank, since when it has been named (UTC s).
        now: UTC seconds.
    """
    if job.hot is not None and (conclusion is None or not conclusion.culprits):
        return _heat_findings(job, job.hot, now)
    if conclusion is None or conclusion.verdict is None or not job.seats:
        return []
    if not conclusion.culprits:
        return [_job_wide_finding(job, conclusion.verdict, now)]
    named: dict[tuple[str, str], list[Culprit]] = {}
    for culprit in conclusion.culprits:
        seat = job.seats.get(culprit.rank)
        if seat is not None:
            named.setdefault((seat.node, seat.gpu if conclusion.kind is SlowdownKind.GPU else ""), []).append(culprit)
    everyone = {culprit.rank for culprit in conclusion.culprits}
    found = []
    for place, each in named.items():
        sure = _is_confirmed_by_peers(job.seats, place[0], everyone) or (
            job.hot is not None and place[1] == job.hot.gpu
        )
        found.append(_culprit_finding(job, conclusion.verdict, place, each, (since, sure), now))
    return [finding for finding in found if finding is not None]


def straggler_end_reason(finding: Finding, seats: Mapping[int, RankPlacement]) -> str:
    """Return why an earlier finding no longer holds; empty if its ranks are no longer reported, so it cannot be decided."""
    if finding.component == HOST or finding.component.kind is ComponentKind.GPU:
        heard = any(seat.node == finding.node for seat in seats.values())
    else:
        heard = bool(seats)
    return NO_LONGER_SLOW if heard else ""


def _culprit_finding(
    job: StragglerContext,
    verdict: StragglerVerdict,
    place: tuple[str, str],
    culprits: Sequence[Culprit],
    said: tuple[Mapping[int, float], bool],
    now: float,
) -> Finding | None:
    """Build the finding about one culprit: a GPU, or a node with several of its ranks.

    `said`: since when, and whether enough peers agree.
    """
    (node, gpu), worst = place, max(culprits, key=lambda each: each.slowdown)
    since, sure = said
    about = (node, Component(ComponentKind.GPU, gpu) if gpu else HOST)
    stood = [each.first_seen for each in job.before if each.active and (each.node, each.component) == about]
    lasted_s = now - min([*stood, *(since.get(each.rank, now) for each in culprits)])
    soon = eject_urgency(worst.slowdown, lasted_s)
    if soon is EjectUrgency.NOTHING:
        return None
    if not sure:
        soon = EjectUrgency.WATCH
    agreed = confirm_culprit(verdict, worst, job.witness(node, gpu))
    cost = compute_eject_break_even(worst.slowdown, LEAVE_COST_S, lasted_s, len(job.seats))
    act = agreed.confirmed is ConfirmationState.YES and cost.worth and soon in _URGENT
    ranks = ", ".join(str(each.rank) for each in sorted(culprits, key=lambda each: each.rank)[:RANKS_NAMED])
    evidence: Evidence = {
        "job": job.ref.job,
        "attempt": job.ref.attempt,
        "ranks": ranks,
        "slowdown": round(worst.slowdown, 4),
        "first_step": -1 if verdict.first_step is None else verdict.first_step,
        "confidence": verdict.confidence,
        "level": soon.value,
        "lasted_s": round(lasted_s),
        "confirmed": agreed.confirmed.value,
        "signs": ", ".join(f"{each.name} {each.value:g}" for each in agreed.reasons),
        "staying_costs_s": round(cost.stay_s),
        "leaving_costs_s": round(cost.leave_s),
        "break_even_s": round(cost.break_even_s),
    }
    whose = f"rank {ranks} needs" if len(culprits) == 1 else f"ranks {ranks} need"
    words = f"{job.ref.job} is slowed down: {whose} {100 * worst.slowdown:.0f} % more time than {'its' if len(culprits) == 1 else 'their'} peers"
    second = (
        "findings of the node itself confirm it"
        if agreed.confirmed is ConfirmationState.YES
        else "no other signal confirms it yet"
    )
    severity = Severity.ERROR if act else Severity.WARNING
    origin = detector_origin(SOURCE, job.ref)
    return build_detector_finding(
        about, (SOURCE, verdict.verdict.value), origin, severity, f"{words}; {second}", now, evidence
    )


def _heat_findings(job: StragglerContext, hot: HeatSuspect, now: float) -> list[Finding]:
    """Build the finding about a hot GPU that the job waits for; its onset takes the place of peers.

    Where only step times are known, it stays a suspicion.
    """
    (culprit,) = hot.verdict.culprits
    since = {culprit.rank: hot.onset.at}
    place = (job.seats[culprit.rank].node, hot.gpu)
    found = _culprit_finding(job, hot.verdict, place, [culprit], (since, hot.onset.own_agrees), now)
    if found is None:
        return []
    words = (
        f"{job.ref.job} is slowed down: its steps take {100 * culprit.slowdown:.0f} % longer since heat holds down the "
        f"clocks of the GPU of rank {culprit.rank}"
    )
    usual_s = round(hot.onset.usual_step_s, 6)
    more: Evidence = {HOT_SINCE: round(hot.onset.at), USUAL: usual_s, OWN_AGREES: hot.onset.own_agrees}
    return [replace(found, summary=words[:SUMMARY_MAX], evidence=found.evidence | more)]


def _is_confirmed_by_peers(seats: Mapping[int, RankPlacement], node: str, culprits: Collection[int]) -> bool:
    """Return whether most of the node's own ranks call it slow, or peers of which no other node has more than half.

    Otherwise one false report from a node with fast ranks would be enough.
    """
    own = [seat for rank, seat in seats.items() if seat.node == node and rank in culprits]
    alike = {(seat.role, seat.stage) for seat in own}
    peers = Counter(
        seat.node for rank, seat in seats.items() if rank not in culprits and (seat.role, seat.stage) in alike
    )
    mates = peers.pop(node, 0)
    if mates >= max(PEERS_MIN - 1, len(own) + 1):
        return True
    return bool(peers) and 2 * max(peers.values()) <= peers.total()


_OWN_TROUBLE = {
    SlowdownKind.STAGE: "one of its stages has more work than the others",
    SlowdownKind.DATA: "its ranks process sequences of unequal length",
    SlowdownKind.GC: "its ranks collect garbage, one after the other",
    SlowdownKind.APPLICATION: "its program delays single ranks",
    SlowdownKind.GLOBAL: "all of its ranks became slower at once",
    SlowdownKind.LINK: "transfers are slow, and the slow link is unknown",
    SlowdownKind.HOST_IO: "all of its ranks wait for data",
}


def _job_wide_finding(job: StragglerContext, verdict: StragglerVerdict, now: float) -> Finding:
    """Build a finding about the job as a whole; it is stored on the node of its first rank."""
    evidence: Evidence = {"job": job.ref.job, "attempt": job.ref.attempt, "confidence": verdict.confidence}
    evidence |= {each.name: each.value for each in verdict.reasons if each.rank is None}
    if verdict.first_step is not None:
        evidence["first_step"] = verdict.first_step
    about = (job.seats[min(job.seats)].node, job_component(job.ref))
    trouble = _OWN_TROUBLE.get(verdict.verdict, verdict.verdict.value)
    words = f"{job.ref.job} is slow, but not because of a node: {trouble}"
    if SLOW_NODE_POSSIBLE in evidence:
        words = f"{job.ref.job} is slow: {trouble}, and all of it is on one node: a slow node cannot be excluded"
    kind = (SOURCE, verdict.verdict.value)
    return build_detector_finding(about, kind, detector_origin(SOURCE, job.ref), Severity.INFO, words, now, evidence)


def job_component(ref: JobRef) -> Component:
    """Return the component that stands for a job's own trouble, as in its nodes' reports."""
    return Component(ComponentKind.RANK, f"{ref.job[:JOB_CHARS_MAX]}.{ref.attempt}")

"""From what stands of a job by its passes to findings: on the culprit, or on the job where nobody is to blame. Pure.

One signal is a suspicion. It becomes an error, which may take the node out, when the node's own findings agree and
leaving costs the job less than staying.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from remediator.detect.stragglers.confirm import Confirmed, Signals, confirm
from remediator.detect.stragglers.peers import PEERS_MIN
from remediator.detect.stragglers.verdict import Culprit, Kind, Verdict
from remediator.detect.stragglers.worth import Level, level, worth_ejecting
from remediator.model.records import JobRef
from remediator.watch.conclusions import conclusion, origin_of
from remediator.watch.passes import Standing
from remediator.watch.timings import Seat
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind

SOURCE = "straggler"
NO_LONGER_SLOW = "no longer slower than its peers"
LEAVE_COST_S = 600.0  # of the whole job: save, restart, lost work; the break-even is 110 minutes at 10 %
RANKS_NAMED = 16
JOB_CHARS_MAX = 200  # as healthd names a job
HOST = Component(ComponentKind.HOST)
_URGENT = {Level.NEXT_CHECKPOINT, Level.NOW}


class Job(NamedTuple):
    """What the judgement of a job needs besides its timing.

    `witness` answers for (node, GPU's UUID); `before` is what was concluded of it, by another leader perhaps.
    """

    ref: JobRef
    seats: Mapping[int, Seat]
    witness: Callable[[str, str], Signals]
    before: Collection[Finding] = ()


def findings(job: Job, standing: Standing, since: Mapping[int, float], now: float) -> list[Finding]:
    """What holds of the job now; nothing where nobody and nothing stands out.

    Args:
        job: whose passes these are.
        standing: what they say together.
        since: by rank, since when it has been named (UTC s).
        now: UTC seconds.
    """
    if standing.verdict is None or not job.seats:
        return []
    if not standing.culprits:
        return [_of_the_job(job, standing.verdict, now)]
    named: dict[tuple[str, str], list[Culprit]] = {}
    for culprit in standing.culprits:
        seat = job.seats.get(culprit.rank)
        if seat is not None:
            named.setdefault((seat.node, seat.gpu if standing.kind is Kind.GPU else ""), []).append(culprit)
    everyone = {culprit.rank for culprit in standing.culprits}
    found = []
    for place, each in named.items():
        sure = _by_more_than_one(job.seats, place[0], everyone)
        found.append(_of_the_culprits(job, standing.verdict, place, each, (since, sure), now))
    return [finding for finding in found if finding is not None]


def over(finding: Finding, seats: Mapping[int, Seat]) -> str:
    """Why one that does not hold any more is over; empty: nobody tells of its ranks any more, so nobody can say."""
    if finding.component == HOST or finding.component.kind is ComponentKind.GPU:
        heard = any(seat.node == finding.node for seat in seats.values())
    else:
        heard = bool(seats)
    return NO_LONGER_SLOW if heard else ""


def _of_the_culprits(
    job: Job,
    verdict: Verdict,
    place: tuple[str, str],
    culprits: Sequence[Culprit],
    said: tuple[Mapping[int, float], bool],
    now: float,
) -> Finding | None:
    """One place that holds the job back: a GPU, or a node with several of its ranks; `said` since when, and by enough."""
    (node, gpu), worst = place, max(culprits, key=lambda each: each.slowdown)
    since, sure = said
    about = (node, Component(ComponentKind.GPU, gpu) if gpu else HOST)
    stood = [each.first_seen for each in job.before if each.active and (each.node, each.component) == about]
    lasted_s = now - min([*stood, *(since.get(each.rank, now) for each in culprits)])
    soon = level(worst.slowdown, lasted_s)
    if soon is Level.NOTHING:
        return None
    if not sure:
        soon = Level.WATCH
    agreed = confirm(verdict, worst, job.witness(node, gpu))
    cost = worth_ejecting(worst.slowdown, LEAVE_COST_S, lasted_s, len(job.seats))
    act = agreed.confirmed is Confirmed.YES and cost.worth and soon in _URGENT
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
    words = f"{job.ref.job} is held back: {whose} {100 * worst.slowdown:.0f} % more time than {'its' if len(culprits) == 1 else 'their'} peers"
    second = "its node's own findings agree" if agreed.confirmed is Confirmed.YES else "nothing else says so yet"
    severity = Severity.ERROR if act else Severity.WARNING
    origin = origin_of(SOURCE, job.ref)
    return conclusion(about, (SOURCE, verdict.verdict.value), origin, severity, f"{words}; {second}", now, evidence)


def _by_more_than_one(seats: Mapping[int, Seat], node: str, culprits: Collection[int]) -> bool:
    """Whether a node is called slow by most of its own ranks, or by peers of which no other node has more than half.

    Else one node that lies could have made it so: its ranks need only be fast.
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
    Kind.STAGE: "one of its stages has more work than the others",
    Kind.DATA: "its ranks work on sequences of unequal length",
    Kind.GC: "its ranks collect garbage, one after the other",
    Kind.APPLICATION: "its program keeps single ranks from their work",
    Kind.GLOBAL: "all of its ranks became slower at once",
    Kind.LINK: "transfers are slow, and it cannot be told whose",
    Kind.HOST_IO: "all of its ranks wait for data",
}


def _of_the_job(job: Job, verdict: Verdict, now: float) -> Finding:
    """Nobody's fault: a fact about the job, kept where its first rank runs."""
    evidence: Evidence = {"job": job.ref.job, "attempt": job.ref.attempt, "confidence": verdict.confidence}
    evidence |= {each.name: each.value for each in verdict.reasons if each.rank is None}
    if verdict.first_step is not None:
        evidence["first_step"] = verdict.first_step
    about = (job.seats[min(job.seats)].node, of_job(job.ref))
    words = (
        f"{job.ref.job} is slow, and no node is to blame: {_OWN_TROUBLE.get(verdict.verdict, verdict.verdict.value)}"
    )
    kind = (SOURCE, verdict.verdict.value)
    return conclusion(about, kind, origin_of(SOURCE, job.ref), Severity.INFO, words, now, evidence)


def of_job(ref: JobRef) -> Component:
    """The component that stands for a job's own trouble, as in what its nodes say of it."""
    return Component(ComponentKind.RANK, f"{ref.job[:JOB_CHARS_MAX]}.{ref.attempt}")

"""Finds in the counts of one RAS answer which ranks the others would wait for, if the job stood still. Pure.

A count says how many collectives a rank's host has launched, not how many its GPU has finished. In a communicator the
ranks with the lowest count have not made the call that all others have entered or queued. One that is behind here and
waits there is a victim of there. Where all counts are equal, they say nothing: a GPU or the network hangs, the job runs
CUDA graphs, whose collectives NCCL does not count, or it calls none at the moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import NamedTuple

from healthd.nccl.ras_answer import Communicator, RankCounts, RasAnswer, RasProcess

SHARE_MAX = 0.25  # of all ranks: if more are behind, something else holds them up

Totals = Mapping[str, Mapping[int, int]]  # communicator → rank → launched collectives


class NumberedRank(NamedTuple):
    """A rank, by its number in the largest communicator that it belongs to, of `size` ranks."""

    rank: int
    size: int
    process: RasProcess


class Suspicion(NamedTuple):
    """Whom the others wait for. `waiting`: ranks of the same communicators.

    `kind`: rank_missing, rank_silent (its process does not answer), calls_differ, stalled (no rank can be named), or
    empty: the counts say nothing.
    """

    kind: str
    suspects: tuple[NumberedRank, ...] = ()
    waiting: int = 0


def count_launches(answer: RasAnswer) -> Totals:
    """Return how many collectives each rank has launched in each communicator."""
    return {each.name: {rank.rank: sum(rank.counts) for rank in each.ranks} for each in answer.communicators}


def sum_launches(answer: RasAnswer) -> Counter[RasProcess]:
    """Return how many collectives each rank has launched in all its communicators."""
    total: Counter[RasProcess] = Counter()
    for each in answer.communicators:
        for rank in each.ranks:
            total[rank.process] += sum(rank.counts)
    return total


def is_progress(before: Totals, after: Totals) -> bool:
    """Return whether a rank has launched a collective, or a communicator is new. A rank without an answer is no progress."""
    return any(
        name not in before or any(before[name].get(rank, total) != total for rank, total in ranks.items())
        for name, ranks in after.items()
    )


def number_ranks(answer: RasAnswer) -> dict[RasProcess, NumberedRank]:
    """Return every rank of the job by its owner."""
    found: dict[RasProcess, NumberedRank] = {}
    for each in sorted(answer.communicators, key=lambda each: each.size):
        size = each.size
        for number, process in each.members:
            found[process] = NumberedRank(number, size, process)
    return found


def find_suspects(
    answer: RasAnswer,
    working: AbstractSet[RasProcess] = frozenset(),
    numbered: Mapping[RasProcess, NumberedRank] | None = None,
) -> Suspicion:
    """Return whom the others would wait for, if the job stood still; meaningless while it moves.

    `numbered`: of `number_ranks`, if known. The GPUs of `working` are known to be busy: such a rank is behind because its
    host waits for its GPU, which waits.
    """
    numbered = number_ranks(answer) if numbered is None else numbered
    absent: set[RasProcess] = set()
    waiting: set[RasProcess] = set()
    odd: set[RasProcess] = set()
    for each in answer.communicators:
        if not _is_running(each):
            continue
        odd |= _find_odd_ranks(each.ranks)
        least = min(sum(rank.counts) for rank in each.ranks)
        behind = {rank.process for rank in each.ranks if sum(rank.counts) == least}
        if len(behind) < len(each.ranks):
            absent |= behind
            waiting |= {rank.process for rank in each.ranks} - behind
    silent = _find_silent_ranks(answer)
    causes = {"rank_silent": silent, "calls_differ": odd, "rank_missing": absent - waiting - working}
    kind, culprits = next(((kind, ranks) for kind, ranks in causes.items() if ranks), ("", set()))
    held_up = _count_companions(answer.communicators, culprits)
    too_many = len(culprits) > max(1, SHARE_MAX * len(numbered))
    if too_many and kind == "rank_silent":
        return Suspicion("")  # most have ended, and the rest is about to
    if too_many or (absent and not culprits):
        return Suspicion("stalled", waiting=len(waiting))
    return Suspicion(kind, tuple(sorted(numbered[process] for process in culprits)), held_up)


def _find_silent_ranks(answer: RasAnswer) -> set[RasProcess]:
    """Return the ranks whose process does not answer. Where others end a communicator, theirs has ended as well."""
    return {
        rank.process
        for each in answer.communicators
        for rank in each.missing
        if rank.silent and all(other.running for other in each.ranks)
    }


def _is_running(communicator: Communicator) -> bool:
    """Return whether all ranks take part: ranks start and leave a communicator one after the other."""
    gone = any(not rank.silent for rank in communicator.missing)
    return bool(communicator.ranks) and not gone and all(rank.running for rank in communicator.ranks)


def _find_odd_ranks(ranks: Sequence[RankCounts]) -> set[RasProcess]:
    """Return the ranks that made other calls than most; all, if no side is larger.

    All ranks make the same calls in the same order, so the counts of one that is behind are nowhere larger.
    """
    ordered = sorted({rank.counts for rank in ranks}, key=sum)
    if all(_is_behind(one, other) for one, other in pairwise(ordered)):
        return set()
    (usual, most), *_ = Counter(rank.counts for rank in ranks).most_common(1)
    if 2 * most <= len(ranks):
        return {rank.process for rank in ranks}
    return {
        rank.process
        for rank in ranks
        if rank.counts != usual and not _is_behind(rank.counts, usual) and not _is_behind(usual, rank.counts)
    }


def _is_behind(one: Sequence[int], other: Sequence[int]) -> bool:
    return sum(one) < sum(other) and all(a <= b for a, b in zip(one, other, strict=True))


def _count_companions(communicators: Iterable[Communicator], culprits: set[RasProcess]) -> int:
    """Return how many other ranks share a communicator with them."""
    together: set[RasProcess] = set()
    for each in communicators:
        members = {process for _, process in each.members}
        if members & culprits:
            together |= members
    return len(together - culprits)

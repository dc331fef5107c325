"""The vote on the digests of fixed products: whose device computes something else than those of its kind. Pure.

Devices of one platform must agree bit for bit. A device has one vote, however many ranks use it. Nobody is named unless
two thirds of at least three devices agree, at least two nodes or the named device's own node among them. Wrong results
differ from each other; devices of two nodes that agree on another result have other software, and are not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from vocabulary.messages.wire import ProductDigests


class Place(NamedTuple):
    """A device: its node, and the UUID of the GPU; without a known GPU each rank has its own device."""

    node: str
    gpu: str
    rank: int = -1


class DigestVote(NamedTuple):
    """`outvoted` are named; `undecided` differ, and at least one of them is wrong. Each with the ranks that use it."""

    outvoted: dict[Place, list[int]]
    undecided: dict[Place, list[int]]


def locate_device(node: str, gpu: str, rank: int) -> Place:
    """Return the device of a rank."""
    return Place(node, gpu, -1 if gpu else rank)


def vote_on_digests(digests: Mapping[tuple[Place, int], ProductDigests]) -> DigestVote:
    """Compare the digests of all ranks of a job, by device and rank."""
    casts: dict[tuple[str, int], dict[Place, set[str]]] = {each: {} for each in _find_disputes(digests.values())}
    ranks: dict[Place, list[int]] = {}
    for (place, rank), told in digests.items() if casts else ():
        ranks.setdefault(place, []).append(rank)
        for pattern, digest in enumerate(told.digests):
            if digest and (told.platform, pattern) in casts:
                casts[told.platform, pattern].setdefault(place, set()).add(digest)
    outvoted = set[Place]().union(*(_count_ballots(cast, ())[0] for cast in casts.values()))
    undecided = set[Place]()
    for (
        cast
    ) in casts.values():  # without the ballots of the named, disputes may be over; but fewer voters name nobody else
        lost, torn = _count_ballots(cast, outvoted)
        undecided |= torn | (cast.keys() - outvoted if lost else set())
    return DigestVote(_with_ranks(outvoted, ranks), _with_ranks(undecided, ranks))


def _find_disputes(digests: Iterable[ProductDigests]) -> list[tuple[str, int]]:
    """Return the platforms and patterns with more than one digest; cheap while all ranks agree."""
    seen: dict[tuple[str, int], set[str]] = {}
    for platform, of_rank in {(told.platform, told.digests) for told in digests}:
        for pattern, digest in enumerate(of_rank):
            if digest:
                seen.setdefault((platform, pattern), set()).add(digest)
    return [each for each, found in seen.items() if len(found) > 1]


def _with_ranks(places: Iterable[Place], ranks: Mapping[Place, list[int]]) -> dict[Place, list[int]]:
    return {place: sorted(ranks[place]) for place in sorted(places)}


def _count_ballots(cast: Mapping[Place, set[str]], named: Collection[Place]) -> tuple[set[Place], set[Place]]:
    """Return the devices that lose the vote on one product, and those among which it decides nothing.

    Args:
        cast: the digests of each device; one with several contradicts itself and has no vote.
        named: the devices that lost another vote; they have none here.
    """
    torn = {place for place, digests in cast.items() if len(digests) > 1 and place not in named}
    ballots = {place: min(each) for place, each in cast.items() if len(each) == 1 and place not in named}
    votes = Counter(ballots.values()).most_common()
    if len(votes) < 2:
        return set(), torn
    winner, most = votes[0]
    if 3 * most < 2 * len(ballots):  # true of any two that differ
        return set(), torn | set(ballots)
    nodes = {place.node for place, digest in ballots.items() if digest == winner}
    lost = set[Place]()
    for digest, _ in votes[1:]:
        holders = {place for place, each in ballots.items() if each == digest}
        if len({place.node for place in holders}) > 1:
            torn |= holders
        elif len(nodes) > 1 or nodes == {place.node for place in holders}:
            lost |= holders
        else:  # the winners have their host in common: it may be theirs that is faulty
            torn |= set(ballots)
    return lost, torn

"""Whose word about a rank counts, and whether all ranks of a job are told of. Pure.

A node may tell of ranks that it does not hold: their pages are left over, or it lies. And a leader that is new has not
heard everybody: who has not been heard may be the one whom the others wait for, so that nobody can be named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from remediator.monitoring.step_windows import RANKS_PER_NODE, NodeRankReport
from vocabulary.messages.wire import RankStatus

STILL_S = 30.0  # a rank that wrote its page later than so long before its node's word moves, or did a moment ago

OUTLIVED_S = 600.0  # a dead rank's page so much older than those of living ones beside it is left over from another run


class RankClaims(NamedTuple):
    """The ranks of a job, each by one node's word: `heard` by nodes that still speak, `silent` by others, by number.

    `whole`: together they are the job's world.
    """

    heard: list[NodeRankReport]
    silent: dict[int, str]
    whole: bool


class _RankClaim(NamedTuple):
    word: NodeRankReport
    rank: RankStatus


def settle_rank_claims(words: Collection[NodeRankReport], speaks: Callable[[str], bool]) -> RankClaims:
    """What is believed of each rank.

    Args:
        words: the last of each node.
        speaks: whether a node was heard lately.
    """
    world = _majority_world_size(words)
    told: dict[int, list[_RankClaim]] = {}
    for word in words:
        own = [rank for rank in word.ranks if rank.world == world and 0 <= rank.rank < world]
        for rank in own[:RANKS_PER_NODE]:
            told.setdefault(rank.rank, []).append(_RankClaim(word, rank))
    believed = {number: claims[0] for number, claims in told.items()}
    disputed = {number: claims for number, claims in told.items() if len(claims) > 1}
    if disputed:
        better = _claim_preference(told, speaks)
        believed |= {number: max(claims, key=better) for number, claims in disputed.items()}
    by_node: dict[str, list[RankStatus]] = {}
    for word, rank in believed.values():
        by_node.setdefault(word.node, []).append(rank)
    heard = [word._replace(ranks=by_node[word.node]) for word in words if word.node in by_node and speaks(word.node)]
    silent = {number: claim.word.node for number, claim in believed.items() if not speaks(claim.word.node)}
    return RankClaims(heard, silent, 0 < world == len(believed))


def _majority_world_size(words: Collection[NodeRankReport]) -> int:
    """The one that most nodes tell, each with one voice; 0 where no world has most."""
    each = [Counter(rank.world for rank in word.ranks if rank.alive).most_common(1) for word in words]
    votes = Counter(worlds[0][0] for worlds in each if worlds).most_common(2)
    tie = len(votes) == 2 and votes[0][1] == votes[1][1]
    return 0 if tie or not votes else votes[0][0]


def _claim_preference(
    told: dict[int, list[_RankClaim]], speaks: Callable[[str], bool]
) -> Callable[[_RankClaim], tuple[bool | float, ...]]:
    """How much one claim on a rank is worth beside another.

    Whoever tells of ranks that nobody else does goes before who does not: so a rank that died, or whose node fell silent,
    is not brought to life by a node without any rank of the job. Else the living goes before the dead, and who speaks
    before who is silent; and of those that are left a few, who say that the job moves, go behind. Then the newest page.
    """
    living = [claim for claims in told.values() for claim in claims if claim.rank.alive]
    nodes = {claim.word.node for claim in living}
    speaking = {node for node in {claim.word.node for claims in told.values() for claim in claims} if speaks(node)}
    rooted = _sole_claimants(told.values())
    newest: dict[str, float] = {}
    for claim in living:
        newest[claim.word.node] = max(claim.rank.at, newest.get(claim.word.node, claim.rank.at))

    def here(claim: _RankClaim) -> bool:
        return claim.rank.alive and claim.word.node in speaking

    def lost(claim: _RankClaim) -> bool:
        node, rank = claim.word.node, claim.rank
        return node in rooted and not here(claim) and rank.at > newest.get(node, rank.at) - OUTLIVED_S

    alone = _sole_claimants([claim for claim in claims if here(claim) or lost(claim)] for claims in told.values())
    fresh = {claim.word.node for claim in living if is_rank_moving(claim.word, claim.rank)}
    few = fresh if 2 * len(fresh) < len(nodes) else set[str]()

    def worth(claim: _RankClaim) -> tuple[bool | float, ...]:
        node, rank = claim.word.node, claim.rank
        runs = here(claim) and (node in alone or not any(map(lost, told[rank.rank])))
        return runs, lost(claim), rank.alive, node in speaking, node in alone, node not in few, rank.at

    return worth


def _sole_claimants(claims: Iterable[Collection[_RankClaim]]) -> set[str]:
    """Nodes with a rank, dead or alive, that no other node tells of."""
    tellers = ({claim.word.node for claim in of_rank} for of_rank in claims)
    return {node for nodes in tellers if len(nodes) == 1 for node in nodes}


def is_rank_moving(word: NodeRankReport, rank: RankStatus) -> bool:
    """Whether a rank wrote its page just before its node's word."""
    return word.sent_at - rank.at < STILL_S

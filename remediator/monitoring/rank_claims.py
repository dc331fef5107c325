"""Decides which node's report counts for a rank, and whether all ranks of a job are reported. Pure.

A node may report ranks that it does not hold: from old beacons, or falsely. A new leader has not received every report
yet, and a rank without a report may be the one the others wait for; then no culprit can be named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from remediator.monitoring.step_windows import RANKS_PER_NODE, NodeRankReport
from vocabulary.messages.wire import RankStatus

STILL_S = 30.0  # a rank moves if its beacon was written within this time before its node's report

OUTLIVED_S = 600.0  # a dead rank's beacon this much older than those of living ranks is left over from another run


class RankClaims(NamedTuple):
    """The ranks of a job by number, one report each: `reported` from nodes that still report, `silent` from the others.

    `complete`: together they make up the job's world.
    """

    reported: list[NodeRankReport]
    silent: dict[int, str]
    complete: bool


class _RankClaim(NamedTuple):
    report: NodeRankReport
    rank: RankStatus


def settle_rank_claims(words: Collection[NodeRankReport], has_reported: Callable[[str], bool]) -> RankClaims:
    """Decide what counts for each rank.

    Args:
        words: each node's last report.
        has_reported: whether a node has reported recently.
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
        better = _claim_preference(told, has_reported)
        believed |= {number: max(claims, key=better) for number, claims in disputed.items()}
    by_node: dict[str, list[RankStatus]] = {}
    for word, rank in believed.values():
        by_node.setdefault(word.node, []).append(rank)
    reported = [
        word._replace(ranks=by_node[word.node]) for word in words if word.node in by_node and has_reported(word.node)
    ]
    silent = {number: claim.report.node for number, claim in believed.items() if not has_reported(claim.report.node)}
    return RankClaims(reported, silent, 0 < world == len(believed))


def _majority_world_size(words: Collection[NodeRankReport]) -> int:
    """Return the world size that most nodes report, one vote per node; 0 without a majority."""
    each = [Counter(rank.world for rank in word.ranks if rank.alive).most_common(1) for word in words]
    votes = Counter(worlds[0][0] for worlds in each if worlds).most_common(2)
    tie = len(votes) == 2 and votes[0][1] == votes[1][1]
    return 0 if tie or not votes else votes[0][0]


def _claim_preference(
    told: dict[int, list[_RankClaim]], has_reported: Callable[[str], bool]
) -> Callable[[_RankClaim], tuple[bool | float, ...]]:
    """Return the rank of one claim among several claims on a rank.

    A node that reports ranks that no other node does comes first: a dead rank, or one of a silent node, is then not revived by
    a node without ranks of the job. Next, living before dead and reporting before silent. Among the rest, the few that
    say the job moves come last. Then the newest beacon wins.
    """
    living = [claim for claims in told.values() for claim in claims if claim.rank.alive]
    nodes = {claim.report.node for claim in living}
    speaking = set(filter(has_reported, {claim.report.node for claims in told.values() for claim in claims}))
    rooted = _sole_claimants(told.values())
    newest: dict[str, float] = {}
    for claim in living:
        newest[claim.report.node] = max(claim.rank.at, newest.get(claim.report.node, claim.rank.at))

    def here(claim: _RankClaim) -> bool:
        return claim.rank.alive and claim.report.node in speaking

    def lost(claim: _RankClaim) -> bool:
        node, rank = claim.report.node, claim.rank
        return node in rooted and not here(claim) and rank.at > newest.get(node, rank.at) - OUTLIVED_S

    alone = _sole_claimants([claim for claim in claims if here(claim) or lost(claim)] for claims in told.values())
    fresh = {claim.report.node for claim in living if is_rank_moving(claim.report, claim.rank)}
    few = fresh if 2 * len(fresh) < len(nodes) else set[str]()

    def worth(claim: _RankClaim) -> tuple[bool | float, ...]:
        node, rank = claim.report.node, claim.rank
        runs = here(claim) and (node in alone or not any(map(lost, told[rank.rank])))
        return runs, lost(claim), rank.alive, node in speaking, node in alone, node not in few, rank.at

    return worth


def _sole_claimants(claims: Iterable[Collection[_RankClaim]]) -> set[str]:
    """Return the nodes with a rank, dead or alive, that no other node reports."""
    tellers = ({claim.report.node for claim in of_rank} for of_rank in claims)
    return {node for nodes in tellers if len(nodes) == 1 for node in nodes}


def is_rank_moving(word: NodeRankReport, rank: RankStatus) -> bool:
    """Return whether a rank wrote its beacon just before its node's report."""
    return word.sent_at - rank.at < STILL_S

"""Groups nodes that report the same job without conflicting ranks, and judges each group alone. Pure.

A node that reports another world size, or a rank that others hold, goes into another group: two jobs may have one name
and a node may report wrongly, and neither may hide the state of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from remediator.monitoring.analysis_passes import AnalysisPasses
from remediator.monitoring.step_windows import NodeRankReport, RankPlacement

TRIED = 16  # groups that a node may join: where more jobs share one name, the rest are judged alone


class RankGroups:
    """The groups of one attempt of a job, oldest first; each node is in one."""

    def __init__(self) -> None:
        self._crews: list[tuple[int, AnalysisPasses]] = []  # with their world sizes
        self._of: dict[str, AnalysisPasses] = {}  # by node

    def __iter__(self) -> Iterator[AnalysisPasses]:
        return (passes for _, passes in self._crews)

    def of(self, node: str) -> AnalysisPasses | None:
        """Return the passes that a node is judged with."""
        return self._of.get(node)

    def take(self, heard: Collection[NodeRankReport]) -> None:
        """Take in what nodes report of their ranks now."""
        if not heard:
            return
        words: dict[int, list[NodeRankReport]] = {}
        claimed: dict[int, dict[int, str]] = {}  # by group and rank: its node in this batch
        for word in heard:
            own = self._place(word, claimed)
            if own is not None:
                words.setdefault(id(own), []).append(word)
        at = max(word.at for word in heard)
        worlds = {id(passes): world for world, passes in self._crews}
        for passes in self:
            world = worlds[id(passes)]
            told = words.get(id(passes), ())
            passes.take([w._replace(ranks=[r for r in w.ranks if r.world == world or not r.alive]) for w in told], at)
        kept = [crew for crew in self._crews if crew[1].timings.seats] or self._crews[:1]
        if len(kept) < len(self._crews):
            self._crews, stay = kept, {id(passes) for _, passes in kept}
            self._of = {node: passes for node, passes in self._of.items() if id(passes) in stay}

    def _place(self, word: NodeRankReport, claimed: dict[int, dict[int, str]]) -> AnalysisPasses | None:
        """Find the oldest group of its world size in which no other node has its ranks.

        A node with ranks keeps its group.
        """
        before = self._of.get(word.node)
        worlds = Counter(rank.world for rank in word.ranks if rank.alive).most_common(1)
        if not worlds:
            return before
        ((world, _),) = worlds
        ranks = [rank.rank for rank in word.ranks if rank.alive and rank.world == world]
        alike = [passes for theirs, passes in self._crews if theirs == world]
        for passes in (*alike[:TRIED], *(each for each in alike[TRIED:] if each is before)):
            now = claimed.setdefault(id(passes), {})
            others = sum(_rank_node(passes.timings.seats, now, rank) not in ("", word.node) for rank in ranks)
            if not others or (passes is before and others < len(ranks)):
                break
        else:
            passes = AnalysisPasses()
            self._crews.append((world, passes))
            now = claimed.setdefault(id(passes), {})
        now |= {rank: word.node for rank in ranks if not _rank_node(passes.timings.seats, now, rank)}
        if before is not None and passes is not before:
            before.timings.leave(word.node)
        self._of[word.node] = passes
        return passes


def _rank_node(seats: Mapping[int, RankPlacement], claimed: Mapping[int, str], rank: int) -> str:
    return seats[rank].node if rank in seats else claimed.get(rank, "")

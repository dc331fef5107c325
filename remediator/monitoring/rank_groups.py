"""Groups the nodes of one attempt of a job into sets that are judged apart: jobs may share a name, and nodes may lie. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from remediator.monitoring.analysis_passes import AnalysisPasses
from remediator.monitoring.heartbeat_table import RankHeartbeat, read_heartbeats
from remediator.monitoring.step_windows import NodeRankReport, RankPlacement

TRIED = 16  # groups that a node may join: where more jobs share one name, the rest are judged alone


class RankGroups:
    """The groups of one attempt of a job, oldest first; each node is in one, and each group is judged alone.

    A node that reports another world size, or a rank that others hold, goes into another group: two jobs may have one
    name and a node may report wrongly, and neither may hide the state of the other.
    """

    def __init__(self) -> None:
        self._crews: list[tuple[int, AnalysisPasses]] = []  # with their world sizes
        self._of: dict[str, AnalysisPasses] = {}  # by node

    def __iter__(self) -> Iterator[AnalysisPasses]:
        return (passes for _, passes in self._crews)

    def of(self, node: str) -> AnalysisPasses | None:
        """Return the passes that a node is judged with."""
        return self._of.get(node)

    def holds_all_of(self, node: str) -> bool:
        """Return whether all living ranks of the node's last report have their place in its group."""
        passes = self._of.get(node)
        return passes is not None and passes.timings.holds_all_of(node)

    def take(self, heard: Collection[NodeRankReport], heartbeats: Sequence[RankHeartbeat] = ()) -> None:
        """Take in what nodes report of their ranks now; the heartbeats are of nodes that it `holds_all_of`."""
        if not heard and not heartbeats:
            return
        words: dict[int, list[NodeRankReport]] = {}
        claimed: dict[int, dict[int, str]] = {}  # by group and rank: its node in this batch
        for word in heard:
            own = self._place(word, claimed)
            if own is not None:
                words.setdefault(id(own), []).append(word)
        beats: dict[int, list[RankHeartbeat]] = {}
        for beat in heartbeats:
            beats.setdefault(id(self._of[beat.node]), []).append(beat)
        at = max([each.at for each in heard] + [each.at for each in heartbeats])
        worlds = {id(passes): world for world, passes in self._crews}
        for passes in self:
            world = worlds[id(passes)]
            told = words.get(id(passes), ())
            of_world = [w._replace(ranks=[r for r in w.ranks if r.world == world or not r.alive]) for w in told]
            beating = beats.get(id(passes))
            passes.take(of_world, at, read_heartbeats(beating) if beating else None)
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

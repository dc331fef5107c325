"""Who holds which rank in a job that may go on with fewer ranks, and with more again. Pure.

Where a rank is lost and no spare has come, the next generation has fewer nodes, down to the least number. Members that
such a generation has no place for wait as spares. Once enough of them wait for another node, and all ranks have paused at
one step, the next generation has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from healthd.launcher.process_groups.group_membership import (
    Generation,
    GroupMembership,
    Member,
    NoSpareError,
    RankReplacement,
)
from vocabulary.text.plurals import format_count

NO_STEP = "no step is done yet"


class SizeLimits(NamedTuple):
    """Between which numbers of nodes a job may go on, and how many ranks it has on each."""

    least: int
    most: int
    per_node: int


class ElasticMembership(GroupMembership):
    """The members of one attempt of a job whose number of ranks may change."""

    elastic = True

    def __init__(self, members: Sequence[Member], world: int, sizes: SizeLimits) -> None:
        """Args: `members`, `world`: as `GroupMembership` has them; `sizes`: within which the number of ranks may change."""
        super().__init__(members, world)
        self._sizes = sizes
        self._fixed = NO_STEP

    def note_fixed(self, why: str) -> None:
        """Why the number of ranks cannot change; empty: any rank's state is all that a job of another size needs."""
        self._fixed = why

    @property
    def shrinks(self) -> bool:
        """Whether the job would go on if it lost another node now and had no spare."""
        return not self._fixed and len(self._holders) // self._sizes.per_node > self._sizes.least

    @property
    def can_grow(self) -> bool:
        """Whether enough members wait for the job to have more nodes."""
        whole = self._number >= 0 and all(self._usable(each) for each in self._holders)
        return whole and not self._fixed and self._room() > len(self._holders)

    def next_generation(self, *, resume: bool = False) -> tuple[Generation, list[RankReplacement]] | None:
        """As `Membership.next_generation`; a loss that no spare makes good is followed by a generation with fewer ranks.

        Raises:
            NoSpareError: too few members are left, or the number of ranks cannot change.
        """
        vacant = [holder for holder in self._holders if not self._usable(holder)]
        if self._number < 0 or 0 < len(vacant) <= len(self._ready()) or (not vacant and self._fixed):
            return super().next_generation(resume=resume)
        if not vacant and not resume:
            return None
        world = self._room() if vacant else max(self._room(), len(self._holders))
        if vacant and (why := self._fixed or self._why_too_few(world)):
            return self._wait_for_spares(why)
        self._seat(world)
        self._number += 1
        return Generation(self._number, tuple(self._holders)), []

    def _room(self) -> int:
        """How many ranks the members that have come suffice for, in whole nodes."""
        per_node = self._sizes.per_node
        left = sum(self._usable(each) for each in self._holders) + len(self._ready())
        return min(left // per_node, self._sizes.most) * per_node

    def _why_too_few(self, world: int) -> str:
        least, left = self._sizes.least, world // self._sizes.per_node
        return f"at least {format_count(least, 'node')} required, {left} remain" if left < least else ""

    def _wait_for_spares(self, why: str) -> tuple[Generation, list[RankReplacement]] | None:
        try:
            return super().next_generation()
        except NoSpareError as error:
            raise NoSpareError(f"{error}; it cannot go on with fewer ranks: {why}") from error

    def _seat(self, world: int) -> None:
        everyone = [*self._holders, *self._spares]
        holders = [each for each in self._holders if self._usable(each)]
        self._holders = assign_ranks([*holders, *self._ready()], self._sizes.per_node, world)
        self._spares = [each for each in everyone if each not in self._holders]


def assign_ranks(members: Sequence[Member], per_node: int, world: int) -> list[Member]:
    """Who of these holds a rank, by rank: first the nodes with all their members; those of a node are neighbours.

    Args:
        members: that hold a rank already, by rank, and then those that wait.
        per_node: ranks.
        world: how many ranks there are to be, no more than members.
    """
    nodes: dict[str, list[Member]] = {}
    for member in members:
        nodes.setdefault(member.node, []).append(member)
    fullest = sorted(nodes.values(), key=lambda each: -min(len(each), per_node))
    chosen = set([member for node in fullest for member in node][:world])
    return [member for node in nodes.values() for member in node if member in chosen]

"""Which process holds which rank of a job, generation after generation. Pure: it is told who came and who is gone.

A *member* is one process that the launcher started. A *generation* is one process group: a member for each rank. A member
that is gone leaves a generation; a spare takes its rank in the next one, and all other members keep theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Member(NamedTuple):
    """One process of a job; `number` is its place in the order of starts."""

    number: int
    node: str


class Generation(NamedTuple):
    """The members of one process group, by rank."""

    number: int
    members: tuple[Member, ...]


class RankReplacement(NamedTuple):
    """A rank that another member holds from a generation on."""

    rank: int
    before: Member
    after: Member


class NoSpareError(Exception):
    """A rank has no member, and no spare is left to take it."""


class GroupMembership:
    """The members of one attempt: the first `world` of them hold the ranks of generation 0, the others are spares."""

    elastic = False  # whether the number of ranks may change

    def __init__(self, members: Sequence[Member], world: int) -> None:
        self._holders = list(members[:world])
        self._spares = list(members[world:])
        self._present: set[int] = set()  # has come to the rendezvous, and is not gone
        self._gone: set[int] = set()
        self._number = -1
        self._condemned: set[str] = set()

    @property
    def spares(self) -> tuple[Member, ...]:
        """Spares that are not gone, whether or not they have come."""
        return tuple(each for each in self._spares if self._usable(each))

    @property
    def condemned(self) -> frozenset[str]:
        """Nodes on which nothing is used."""
        return frozenset(self._condemned)

    @property
    def holders(self) -> tuple[Member, ...]:
        """Who holds the ranks of the newest generation, or is to hold those of the first."""
        return tuple(self._holders)

    @property
    def shrinks(self) -> bool:
        """Whether the job would go on without a node that is lost, and without a spare."""
        return False

    @property
    def can_grow(self) -> bool:
        """Whether a generation with more ranks is possible."""
        return False

    def note_fixed(self, why: str) -> None:
        """Why the number of ranks cannot change; here it never does."""

    def admit(self, members: Sequence[Member]) -> None:
        """Processes that were started later; they are spares. A node that was condemned is used again: it was repaired."""
        repaired = self._condemned & {each.node for each in members}
        for each in (*self._holders, *self._spares):
            if each.node in repaired:  # from before the repair
                self.leave(each.number)
        self._condemned -= repaired
        self._spares += members

    def arrive(self, number: int) -> None:
        """A member has come to the rendezvous."""
        if number not in self._gone:
            self._present.add(number)

    def leave(self, number: int) -> bool:
        """A member is gone for good; whether that is news."""
        known = number in self._gone
        self._gone.add(number)
        self._present.discard(number)
        return not known

    def is_gone(self, number: int) -> bool:
        """Whether a member has left, or was taken for lost."""
        return number in self._gone

    def condemn(self, nodes: Collection[str]) -> list[Member]:
        """Stop using these nodes; the members there that are not gone yet."""
        self._condemned |= set(nodes)
        everyone = (*self._holders, *self._spares)
        return [each for each in everyone if each.node in self._condemned and each.number not in self._gone]

    def next_generation(self, *, resume: bool = False) -> tuple[Generation, list[RankReplacement]] | None:
        """The next generation, if one is needed and everybody in it has come; None: nothing to do, or somebody is awaited.

        Args:
            resume: one is needed in any case, as all ranks have left the newest.

        Raises:
            NoSpareError: a rank has no member, and there are too few spares.
        """
        vacant = [rank for rank, holder in enumerate(self._holders) if not self._usable(holder)]
        spares, ready = self.spares, self._ready()
        if len(vacant) > len(spares):
            ranks = ", ".join(map(str, vacant))
            raise NoSpareError(f"{len(spares)} spare processes are available for rank {ranks}")
        settled = [holder for holder in self._holders if self._usable(holder)]
        if (self._number >= 0 and not vacant and not resume) or len(ready) < len(vacant):
            return None
        if any(holder.number not in self._present for holder in settled):
            return None
        replaced = [
            RankReplacement(rank, self._holders[rank], spare) for rank, spare in zip(vacant, ready, strict=False)
        ]
        for rank, _, spare in replaced:
            self._holders[rank] = spare
            self._spares.remove(spare)
        self._number += 1
        return Generation(self._number, tuple(self._holders)), replaced

    def rank_of(self, number: int) -> int | None:
        """The rank that a member holds in the newest generation; None: none."""
        return next((rank for rank, holder in enumerate(self._holders) if holder.number == number), None)

    def _ready(self) -> list[Member]:
        """Spares that have come."""
        return [each for each in self.spares if each.number in self._present]

    def _usable(self, member: Member) -> bool:
        return member.number not in self._gone and member.node not in self._condemned

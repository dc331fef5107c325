"""From one generation of a job's process group to the next: what it was about, and the seconds of each phase."""

from __future__ import annotations

import time
from typing import Any

from healthd.launcher.process_groups.group_membership import Generation, RankReplacement
from healthd.launcher.scheduler_backend import Event
from vocabulary.text.plurals import format_count

PHASES = ("decided", "met", "state", "first step")  # after the loss was seen, or the waiting members of a larger job


class GenerationTransition:
    """The newest one. Times are taken as its methods are called."""

    def __init__(self) -> None:
        self._generation: Generation | None = None
        self._ranks_before, self._same = 0, False
        self._began_at = self._formed_at = self._met_at = self._loaded_at = 0.0
        self._lost_steps = 0  # that some rank had finished, and that the newest generation trains once more
        self._informed: set[int] = set()  # members that have loaded a state, and know how far they were
        self._survivors = True  # whether one of them is in the newest generation, if there were any

    @property
    def formed_at(self) -> float:
        """When the newest generation was formed, by the monotonic clock."""
        return self._formed_at

    def begin(self) -> None:
        """A rank is lost, or the job is to grow."""
        self._began_at = time.monotonic()

    def pause(self) -> None:
        """A rank has paused. If nothing had begun since the newest generation was formed, a collective of it has failed."""
        if self._began_at <= self._formed_at:
            self.begin()

    def form(self, generation: Generation) -> None:
        """This generation is the newest from now on."""
        before = self._generation or generation
        self._ranks_before, self._same = len(before.members), before.members == generation.members
        self._generation, self._formed_at, self._lost_steps = generation, time.monotonic(), 0
        self._survivors = not self._informed or any(each.number in self._informed for each in generation.members)

    def meet(self) -> None:
        """A member is in the new process group."""
        self._met_at = time.monotonic()

    def load(self, member: int, finished: int, begin: int) -> None:
        """A member has its state, and begins with step `begin`; `finished` was the last that it knew to be done."""
        self._loaded_at = time.monotonic()
        self._informed.add(member)
        self._lost_steps = max(self._lost_steps, finished + 1 - begin)

    def announcement(self) -> Event | None:
        """What a new generation of another size is about, before it has trained."""
        assert self._generation is not None  # noqa: S101 - it was formed
        kind = {"shrunk": "shrinking", "grown": "growing"}.get(self._kind)
        if kind is None:
            return None
        nodes = list(dict.fromkeys(each.node for each in self._generation.members))
        facts: dict[str, Any] = {"generation": self._generation.number, "nodes": nodes} | self._sizes
        text = f"generation {self._generation.number} continues with {format_count(facts['ranks'], 'rank')} instead of {self._ranks_before}, on {', '.join(nodes)}"
        return Event(kind, text, facts)

    def event(self, step: int, source: str) -> Event:
        """The first step of the newest generation is done; its state came from `source`."""
        assert self._generation is not None  # noqa: S101 - it was formed
        marks = (self._began_at, self._formed_at, self._met_at, self._loaded_at, time.monotonic())
        seconds = {name: round(marks[at + 1] - marks[at], 3) for at, name in enumerate(PHASES)}
        told = ", ".join(f"{name} {each:.2f}" for name, each in seconds.items())
        total, kind = marks[-1] - marks[0], self._kind
        since = {"grown": "the ranks were ordered to pause", "resumed": "the ranks began to pause"}.get(
            kind, "the loss"
        )
        size = f" with {format_count(len(self._generation.members), 'rank')}" if kind in ("shrunk", "grown") else ""
        lost = (
            format_count(self._lost_steps, "finished step")
            if self._survivors
            else "an unknown number of finished steps"
        )
        text = f"generation {self._generation.number}: step {step} is done{size} {total:.2f} s after {since} ({told}); {lost} lost, the state came from {source}"
        facts: dict[str, Any] = {
            "generation": self._generation.number,
            "step": step,
            "lost": self._lost_steps if self._survivors else None,
            "source": source,
            "seconds": round(total, 3),
            "phases": seconds,
        }
        return Event(kind, text, facts | self._sizes if size else facts)

    @property
    def _kind(self) -> str:
        assert self._generation is not None  # noqa: S101 - it was formed
        ranks = len(self._generation.members)
        if ranks == self._ranks_before:
            return "resumed" if self._same else "swapped"
        return "shrunk" if ranks < self._ranks_before else "grown"

    @property
    def _sizes(self) -> dict[str, int]:
        assert self._generation is not None  # noqa: S101 - it was formed
        return {"ranks": len(self._generation.members), "ranks_before": self._ranks_before}


def make_replacement_event(generation: int, each: RankReplacement) -> Event:
    """The event of one rank that a spare takes over in `generation`."""
    text = f"generation {generation}: rank {each.rank} goes from {each.before.node} to the spare on {each.after.node}"
    facts: dict[str, object] = {"generation": generation, "rank": each.rank}
    return Event("rank_replaced", text, facts | {"before": each.before.node, "after": each.after.node})

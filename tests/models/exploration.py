"""Every state that a model can reach, breadth-first: each is checked, so the first wrong one has a shortest story.

A model is a state that can be hashed and what may happen next. What the world may do to us (a loss, a death, a word) is marked
as its doing; it does so only a bounded number of times. A run in which everything else goes on for ever, fairly, ends if from every
state an end can be reached by our own steps alone; that is what is checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S")


class Step(NamedTuple, Generic[S]):
    """What may happen next, in words; `wrong` says which rule it breaks."""

    text: str
    state: S
    world: bool = False  # the world's doing: no run may count on it
    wrong: str = ""


class Model(Protocol[S]):
    """What can be explored."""

    def initial(self) -> S:
        """Where every run begins."""

    def steps(self, state: S) -> Iterator[Step[S]]:
        """Everything that may happen next, always in the same order."""

    def wrong(self, state: S) -> str:
        """Which rule is broken here; empty when none is."""

    def ended(self, state: S) -> bool:
        """Whether a run may rest here for ever."""

    def canonical(self, state: S) -> S:
        """The one of all states that differ only by names which stands for them."""


class Explored(NamedTuple):
    """What was found: how much there is, what is wrong with it and the shortest way there."""

    states: int
    steps: int
    depth: int  # of the state farthest from the first
    ends: int
    seconds: float
    wrong: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = [f"{number:3} {line}" for number, line in enumerate(self.story, 1)]
        return (
            "\n".join([*told, f"    wrong: {self.wrong}"]) + "\n" if self.wrong else f"{self.states} states: all well\n"
        )


class _Reached(Generic[S]):
    """States by number, in the order in which they were met, and for each the one before it."""

    def __init__(self, first: S) -> None:
        self.numbers: dict[S, int] = {first: 0}
        self.states: list[S] = [first]
        self.before: list[int] = [-1]
        self.depth: list[int] = [0]

    def number(self, state: S, before: int) -> int:
        known = self.numbers.setdefault(state, len(self.states))
        if known == len(self.states):
            self.states.append(state)
            self.before.append(before)
            self.depth.append(self.depth[before] + 1)
        return known

    def path(self, number: int) -> list[S]:
        path: list[S] = []
        while number >= 0:
            path.append(self.states[number])
            number = self.before[number]
        return path[::-1]


def explore(model: Model[S], states_max: int = 2_000_000) -> Explored:
    """Look at every state within reach, or up to the first that is wrong.

    Raises:
        OverflowError: there are more than `states_max` states: the model is not bounded as it was meant to be.
    """
    begun = time.perf_counter()
    reached = _Reached(model.canonical(model.initial()))
    ours: list[tuple[int, int]] = []  # our own steps: where to, where from
    ends: list[int] = []
    steps = at = 0

    def told(wrong: str, last: str = "") -> Explored:
        story, wrong = _story(model, reached.path(at), wrong, last) if wrong else ((), "")
        seconds = time.perf_counter() - begun
        return Explored(len(reached.states), steps, reached.depth[-1], len(ends), seconds, wrong, story)

    while at < len(reached.states):
        state = reached.states[at]
        if wrong := model.wrong(state):
            return told(wrong)
        if model.ended(state):
            ends.append(at)
        for step in model.steps(state):
            steps += 1
            if step.wrong:
                return told(step.wrong, step.text)
            to = reached.number(model.canonical(step.state), at)
            if not step.world:
                ours.append((to, at))
        if len(reached.states) > states_max:
            raise OverflowError(f"more than {states_max} states")
        at += 1
    stuck = _without_an_end(len(reached.states), ours, ends)
    if stuck is not None:
        at = stuck
        return told("from here no step of ours leads to an end any more")
    return told("")


def _without_an_end(states: int, ours: list[tuple[int, int]], ends: list[int]) -> int | None:
    """The first state from which no end can be reached by our own steps."""
    before: list[list[int]] = [[] for _ in range(states)]
    for to, where_from in ours:
        before[to].append(where_from)
    good = bytearray(states)
    waiting = list(ends)
    for end in ends:
        good[end] = 1
    while waiting:
        for number in before[waiting.pop()]:
            if not good[number]:
                good[number] = 1
                waiting.append(number)
    at = good.find(0)
    return None if at < 0 else at


def _story(model: Model[S], path: list[S], wrong: str, last: str) -> tuple[tuple[str, ...], str]:
    """The steps along a path of canonical states and what is wrong, told with the names that things have from beginning to end."""
    state, lines = model.initial(), []
    for wanted in path[1:]:
        step = next(s for s in model.steps(state) if not s.wrong and model.canonical(s.state) == wanted)
        lines.append(step.text)
        state = step.state
    if last:
        found = [step for step in model.steps(state) if step.wrong]
        step = next((step for step in found if step.text == last), found[0])
        return (*lines, step.text), step.wrong
    return tuple(lines), model.wrong(state) or wrong

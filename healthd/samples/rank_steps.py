"""Samples of how training goes on: what each rank of this node is doing, and the steps it finished since the last look.

Times are UTC seconds, durations seconds. A number that the loop did not report is None; one that it reported may be
NaN or infinite.
"""

from __future__ import annotations

from typing import NamedTuple


class StepFacts(NamedTuple):
    """One finished step. `ordinal` counts a process's steps from 0; seconds of a section are None where it was not timed."""

    ordinal: int
    step: int
    started_at: float
    seconds: float
    checkpoint_s: float = 0.0
    communication_s: float | None = None
    loss: float | None = None
    gradient_norm: float | None = None
    tokens: float | None = None
    data_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None


class RankSteps(NamedTuple):
    """One rank. `phase` and `section` are what it is in now, by name; `new` are its finished steps, oldest first.

    Ranks of several users are never of one job, whatever its name is; `user` is the number of theirs.
    """

    job: str
    attempt: int
    rank: int
    world: int
    pid: int
    alive: bool
    step: int
    completed: int
    phase: str
    section: str = ""
    new: tuple[StepFacts, ...] = ()
    user: int = -1

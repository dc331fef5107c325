"""Samples of the beacon pages: each local rank's current phase, and the steps it finished since the last sample.

Times are UTC seconds, durations seconds. A value that the loop did not report is None; a reported one may be NaN or
infinite.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from vocabulary.messages.wire import RankStatus


class StepFacts(NamedTuple):
    """One finished step.

    `ordinal` counts a process's steps from 0; a section's seconds are None if it was not timed.
    """

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
    """One rank. `phase` and `section` are its current ones, by name; `new` are its finished steps, oldest first.

    Ranks of several users never belong to one job, whatever its name; `user` is their user id. `gpu` is its UUID.
    `cpu_s`: CPU seconds that its processes have used, read now and then while it makes no progress.
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
    gpu: str = ""
    cpu_s: float | None = None


class Beacons(msgspec.Struct, frozen=True):
    """All trainer ranks of this node, and unreadable pages: file name to problem.

    `disputed` are jobs that several users claim: name to the users, and the owner if the scheduler reports one.
    """

    at: float
    ranks: tuple[RankStatus, ...]
    broken: dict[str, str]
    steps: tuple[RankSteps, ...] = ()  # of the same ranks
    disputed: dict[str, str] = {}

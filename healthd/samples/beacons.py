"""Samples of the beacon pages. Times are UTC seconds."""

from __future__ import annotations

import msgspec

from healthd.samples.rank_steps import RankSteps
from vocabulary.messages.wire import RankStatus


class Beacons(msgspec.Struct, frozen=True):
    """All trainer ranks of this node, and unreadable pages: file name to problem.

    `disputed` are jobs that several users claim: name to the users, and the owner if the scheduler reports one.
    """

    at: float
    ranks: tuple[RankStatus, ...]
    broken: dict[str, str]
    steps: tuple[RankSteps, ...] = ()  # of the same ranks
    disputed: dict[str, str] = {}

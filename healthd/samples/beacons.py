"""Samples of the trainer pages. Times are UTC seconds."""

from __future__ import annotations

import msgspec

from healthd.samples.rank_steps import RankSteps
from vocabulary.messages.wire import RankStatus


class Beacons(msgspec.Struct, frozen=True):
    """All trainer ranks of this node, and the pages that could not be read: file name to what is wrong.

    `disputed` are jobs that several users claim: name to who they are, and whose it is where the scheduler tells.
    """

    at: float
    ranks: tuple[RankStatus, ...]
    broken: dict[str, str]
    steps: tuple[RankSteps, ...] = ()  # of the same ranks
    disputed: dict[str, str] = {}

"""Distinguishes drains of ours that an operator lifted from those that Slurm forgot.

slurmctld saves its state a few seconds after a change. If it crashes in between, its successor knows nothing of the
drain, and the faulty node is free again. An operator's lift looks the same, and ends our hold for good; so a drain
counts as forgotten only if slurmctld restarted since we last saw it. An operator who lifts it in that moment must do so
twice, which is better than a faulty node that returns by itself. Each drain is judged separately, because nodes are not
all read together.
"""

from __future__ import annotations

from collections.abc import Mapping

from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState

CLOCKS_S = 5.0  # tolerated difference of slurmctld's clock; it reports its start in whole seconds


class DrainMemory:
    """Our drains as last seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float | None]] = {}  # node → when, start of slurmctld then; UTC s
        self.began: float | None = None  # start of the known slurmctld, UTC s; None: not queried yet

    def remember(self, held: Mapping[str, float]) -> None:
        """Record holds of an earlier leader and when they were seen, UTC s.

        So an earlier restart of slurmctld counts as well.
        """
        self._seen = {**{name: (at, None) for name, at in held.items()}, **self._seen}

    def gone(self, holds: Mapping[str, SchedulerNodeState]) -> set[str]:
        """Return the nodes where we saw our drain last time and that may take work now."""
        return {name for name in self._seen if name in holds and holds[name].schedulable}

    def forgotten(self, gone: set[str], began: float | None) -> set[str]:
        """Return those of `gone` whose drain Slurm forgot.

        `began`: start of the current slurmctld, UTC s; None: unknown.
        """
        if began is None:
            return set()
        self.began = began
        return {name for name in gone if began != self._seen[name][1] and began > self._seen[name][0] - CLOCKS_S}

    def seen(self, holds: Mapping[str, SchedulerNodeState], now: float) -> None:
        """Record the current drains."""
        for name, hold in holds.items():
            if hold.owner is HoldOwner.US:
                self._seen[name] = (now, self.began)
            elif hold.schedulable is not None or not hold.known:
                self._seen.pop(name, None)

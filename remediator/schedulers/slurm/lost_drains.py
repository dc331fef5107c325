"""Drains of ours that are gone: did somebody lift them, or did Slurm forget them?

slurmctld writes its state down a few seconds after a change. One that dies in between, and the one that takes over from it, know
nothing of the drain, and the faulty node is free again. An operator's lift looks the same, and ends our hold for good; so it
counts as forgotten only if slurmctld began anew since we last saw our drain. Where a person lifts it in that same moment, they
are asked to do so twice; better than a faulty node that comes back by itself. Each drain is judged by itself, for not all nodes
are looked at together: that a restart is known of one says nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from remediator.model.scheduler_hold import HoldOwner, NodeHold

CLOCKS_S = 5.0  # what slurmctld's clock may differ from ours, with its start told in whole seconds


class DrainMemory:
    """Our drains as last seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float | None]] = {}  # node → when, and as it began that we knew then; UTC s
        self.began: float | None = None  # the slurmctld that we know, UTC s; None: not asked yet

    def remember(self, held: Mapping[str, float]) -> None:
        """What a leader before us held, and when that was seen, UTC s; so a restart of slurmctld counts that was before ours."""
        self._seen = {**{name: (at, None) for name, at in held.items()}, **self._seen}

    def gone(self, holds: Mapping[str, NodeHold]) -> set[str]:
        """The nodes on which we saw our drain last time and that may take work now."""
        return {name for name in self._seen if name in holds and holds[name].schedulable}

    def forgotten(self, gone: set[str], began: float | None) -> set[str]:
        """Those of `gone` whose drain Slurm forgot. `began`: when the slurmctld of now began, UTC s; None: not told."""
        if began is None:
            return set()
        self.began = began
        return {name for name in gone if began != self._seen[name][1] and began > self._seen[name][0] - CLOCKS_S}

    def seen(self, holds: Mapping[str, NodeHold], now: float) -> None:
        """This is how things are."""
        for name, hold in holds.items():
            if hold.owner is HoldOwner.US:
                self._seen[name] = (now, self.began)
            elif hold.schedulable is not None or not hold.known:
                self._seen.pop(name, None)

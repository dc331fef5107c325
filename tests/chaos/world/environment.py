"""What all parts of a run's world share: places, addresses, the environment of its processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from tests.chaos.plan import Plan
from tests.chaos.world import stepped_clock
from tests.chaos.world.journal import Journal
from tests.chaos.world.network import CENTRE

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
PORT, CENTRE_PORT = 15180, 15190
BEACONS = Path("/dev/shm/beacons")


class Surroundings(NamedTuple):
    """One run's."""

    plan: Plan
    place: Path
    journal: Journal
    library: Path  # the pretended driver's

    @property
    def url(self) -> str:
        """Where nodes and people find whichever centre leads."""
        return f"http://{CENTRE}:{PORT}"

    def node(self, name: str) -> Path:
        """A node's files."""
        return self.place / "nodes" / name

    def state(self, daemon: str) -> Path:
        """The disk of a daemon: a small one of its own."""
        return (
            self.node(daemon.removeprefix("healthd-")) / "state"
            if daemon.startswith("healthd")
            else self.place / "centre"
        )

    def token(self, name: str) -> Path:
        """The file with somebody's token."""
        return self.place / "tokens" / name

    def env(self, daemon: str = "") -> dict[str, str]:
        """The environment of a process; of one whose clock will be stepped, with the library that does it."""
        env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
        if any(strike.disaster == "clock_step" and strike.target == daemon for strike in self.plan.strikes):
            self.set_clock(daemon, 0.0)
            env |= stepped_clock.environment(stepped_clock.build(self.place), self._clock(daemon))
        return env

    def set_clock(self, daemon: str, offset_s: float) -> None:
        """From now on a daemon's wall clock is so far off."""
        stepped_clock.set_offset(self._clock(daemon), offset_s)

    def _clock(self, daemon: str) -> Path:
        return self.place / f"{daemon}.clock"

"""The training job: the real launcher in a queue of our own making, and its ranks as the run sees them from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.chaos.world.daemons import Daemon
from tests.chaos.world.environment import BEACONS, BIN, Surroundings

STEP_S, EVERY = 0.1, 25
QUEUE_S = 3.0  # how long the job waits in its queue
LOOKS = 2
REQUEUE = 75  # what the launcher answers when too few nodes are left
AHEAD_STEPS = 30


class Job:
    """One job on all nodes of the plan that it is given."""

    def __init__(self, here: Surroundings) -> None:
        self._journal = here.journal
        self._queued_before = 0
        self.place = here.place / "job"
        self.place.mkdir()
        script = Path(__file__).with_name("trainer.py")
        trainer = [sys.executable, str(script), str(self.place), str(EVERY), str(STEP_S)]
        world = here.plan.world
        argv = [str(BIN / "healthctl"), "launch", "--backend=local", f"--node-names={','.join(world.nodes)}"]
        argv += [f"--nodes={world.trainers}", "--leave-seconds=10", f"--events={here.journal.place}/launcher.jsonl"]
        env = {
            "HEALTHD_JOB": "job",
            "HEALTHD_BEACON_DIR": str(BEACONS / "{node}"),
            "HEALTHD_SOCKET": str(here.node("{node}") / "run" / "healthd.sock"),
        }
        self.daemon = Daemon(
            "job", [*argv, "--", *trainer], here.env() | env, here.place / "job.log", here.journal, QUEUE_S
        )

    def steps(self) -> list[dict[str, Any]]:
        """All lines of the ranks' step logs."""
        files = sorted(self.place.glob("steps-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def signal_rank(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to a rank, if it runs."""
        for pid in self._pids(rank):
            self._journal.write("signals", daemon=f"rank-{rank}", signal=number.name, pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def die_in_next_save(self, rank: int) -> None:
        """That rank ends itself by SIGKILL where others wait for its part of the checkpoint."""
        self._journal.write("signals", daemon=f"rank-{rank}", signal="SIGKILL", pid=0)
        (self.place / f"die-in-save-{rank}").touch()

    def name_last_step(self) -> None:
        """The job is to end soon, in good order."""
        last = max((line["step"] for line in self.steps()), default=0)
        aside = self.place / "last_step.new"  # a rank may look at any moment
        aside.write_text(str(last + AHEAD_STEPS))
        aside.rename(self.place / "last_step")
        self._queued_before = self._queued()

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self.daemon.exit_code == 0

    @property
    def waits(self) -> bool:
        """Whether, since its last step was named, the launcher looked for nodes again and again and found too few."""
        return self._queued() - self._queued_before >= LOOKS

    def _queued(self) -> int:
        ended = [
            line for line in self._journal.read("processes") if line["daemon"] == "job" and line["event"] == "ended"
        ]
        return sum(line["code"] == REQUEUE for line in ended)

    def _pids(self, rank: int) -> list[int]:
        """By what stands in their environment: no other process of the run has it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                environment = (process / "environ").read_bytes().split(b"\0")
                if str(self.place).encode() in words and f"RANK={rank}".encode() in environment:
                    found.append(int(process.name))
        return found

"""The training job: the real launcher in a queue of our own making, and its ranks as the run sees them from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.plan import World
from tests.chaos.world.daemons import Daemon
from tests.chaos.world.environment import BEACONS, BIN, Surroundings

STEP_S, EVERY = 0.1, 25
QUEUE_S = 3.0  # how long the job waits in its queue
RETURN_S = 2.0  # from the loss of a node until a job that may grow again asks for it
LOOKS = 2
REQUEUE = 75  # what the launcher answers when too few nodes are left
AHEAD_STEPS = 30


class RankProcess(NamedTuple):
    """A process of the job, a spare too: what its launcher gave it at its start."""

    pid: int
    node: str
    rank: str  # empty for a spare


class Job:
    """One job on all nodes of the plan that it is given."""

    def __init__(self, here: Surroundings) -> None:
        self._journal = here.journal
        self._queued_before = 0
        self._stopped: dict[str, list[RankProcess]] = {}  # processes that stand still, by the disaster's target
        self.place = here.place / "job"
        self.place.mkdir()
        script = Path(__file__).with_name("trainer.py")
        trainer = [sys.executable, str(script), str(self.place), str(EVERY), str(STEP_S)]
        argv = [str(BIN / "healthctl"), "launch", "--backend=local", f"--events={here.journal.place}/launcher.jsonl"]
        argv += ["--leave-seconds=10", *launch_options(here.plan.world)]
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
        """Send a signal to whichever process holds a rank, if one does."""
        self._send(f"rank-{rank}", self._holders(rank), number)

    def signal_node(self, node: str, number: signal.Signals) -> None:
        """Send a signal to all processes of the job on a node, those that wait for a rank too."""
        self._send(f"ranks-of-{node}", [each for each in self._processes() if each.node == node], number)

    def go_on(self, rank: int) -> None:
        """SIGCONT to what SIGSTOP was sent to."""
        self._send(f"rank-{rank}", self._stopped.pop(f"rank-{rank}", []), signal.SIGCONT)

    def die_in_next_save(self, rank: int) -> None:
        """That rank ends itself by SIGKILL where others wait for its part of the checkpoint."""
        self._journal.write("signals", daemon=f"rank-{rank}", signal="SIGKILL", pid=0, node="")
        (self.place / f"die-in-save-{rank}").touch()

    def name_last_step(self) -> int:
        """The job is to end soon, in good order; with which step."""
        last = max((line["step"] for line in self.steps()), default=0) + AHEAD_STEPS
        aside = self.place / "last_step.new"  # a rank may look at any moment
        aside.write_text(str(last))
        aside.rename(self.place / "last_step")
        self._queued_before = self._queued()
        return last

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self.daemon.exit_code == 0

    @property
    def waits(self) -> bool:
        """Whether, since its last step was named, the launcher looked for nodes again and again and found too few."""
        return self._queued() - self._queued_before >= LOOKS

    def _send(self, target: str, processes: Sequence[RankProcess], number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self._stopped[target] = list(processes)
        for each in processes:
            self._journal.write("signals", daemon=target, signal=number.name, pid=each.pid, node=each.node)
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, number)

    def _queued(self) -> int:
        ended = [
            line for line in self._journal.read("processes") if line["daemon"] == "job" and line["event"] == "ended"
        ]
        return sum(line["code"] == REQUEUE for line in ended)

    def _holders(self, rank: int) -> list[RankProcess]:
        """By what the ranks wrote last when they began; a process that has not begun yet by its first rank."""
        living = self._processes()
        began = [line for line in self.steps() if line["event"] == "began"]
        held = {line["pid"]: line["rank"] for line in sorted(began, key=lambda line: line["mono"])}
        return [each for each in living if str(held.get(each.pid, each.rank)) == str(rank)]

    def _processes(self) -> list[RankProcess]:
        """By what stands in their environment: no other process of the run has it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                entries = (process / "environ").read_bytes().decode(errors="replace").split("\0")
                environ = dict(entry.partition("=")[::2] for entry in entries)
                if str(self.place).encode() in words and "HEALTHD_NODE" in environ:
                    found.append(RankProcess(int(process.name), environ["HEALTHD_NODE"], environ.get("RANK", "")))
        return found


def launch_options(world: World) -> list[str]:
    """The launcher's options for a world."""
    options = [f"--node-names={','.join(world.nodes)}", f"--nodes={world.trainers}"]
    options += [f"--ranks-per-node={world.ranks_per_node}"]
    if world.swap:
        options += ["--swap", f"--spares={world.spares}"]
    if world.least:
        options += [f"--min-nodes={world.least}", f"--return-seconds={RETURN_S:g}"]
    return options

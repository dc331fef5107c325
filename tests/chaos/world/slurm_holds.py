"""The real Slurm of a run, and its change record: what slurmctld's own log says of nodes, read when the run is over.

The work on the nodes is the launcher's, not Slurm's: for Slurm they are idle.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from tests.chaos.world.journal import Journal

REASON = re.compile(r"\[(?P<at>\S+)\] update_node: node (?P<node>\S+) reason set to: (?P<reason>.*)")
STATE = re.compile(r"\[(?P<at>\S+)\] update_node: node (?P<node>\S+) state set to (?P<state>\w+)")


class SlurmHolds:
    """munged, slurmctld and a slurmd for each node, below `place`."""

    def __init__(self, place: Path, nodes: tuple[str, ...], journal: Journal) -> None:
        self._journal = journal
        self._programs = SupervisedPrograms(place / "slurm-logs")
        self._cluster = SlurmCluster(place / "slurm", self._programs, ClusterShape(nodes=nodes, cpus=1))
        self._cluster.start()
        self.conf = self._cluster.conf

    def stop(self) -> None:
        """No controller."""
        self._cluster.stop_controller()

    def start(self) -> None:
        """A controller again."""
        self._cluster.start_controller()

    def stand_still(self, *, still: bool) -> None:
        """The controller takes connections and answers nobody; or goes on."""
        pid = self._programs.pid("slurmctld")
        if pid is not None:
            os.kill(pid, signal.SIGSTOP if still else signal.SIGCONT)

    def write_record(self) -> None:
        """Slurm's changes of nodes, as the journal has those of other schedulers."""
        self._journal.copy("scheduler", changes((self._cluster.directory / "log" / "slurmctld.log").read_text()))

    def close(self) -> None:
        """End all of it."""
        self._programs.close()


def changes(log: str) -> Iterator[dict[str, Any]]:
    """Holds placed, renamed and lifted, by the words of a controller's log."""
    reasons: dict[str, str] = {}
    held: dict[str, str] = {}
    for line in log.splitlines():
        if found := REASON.match(line):
            reasons[found["node"]] = found["reason"]
            if found["node"] in held and held[found["node"]] != found["reason"]:
                held[found["node"]] = found["reason"]
                yield _change(found["at"], found["node"], found["reason"])
        elif found := STATE.match(line):
            node, out = found["node"], found["state"].startswith(("DRAIN", "DOWN", "FAIL"))
            if out and node not in held:
                held[node] = reasons.get(node, "no reason")
                yield _change(found["at"], node, held[node])
            elif not out and held.pop(node, None) is not None:
                yield _change(found["at"], node, "")


def _change(at: str, node: str, reason: str) -> dict[str, Any]:
    wall = dt.datetime.fromisoformat(at).timestamp()
    mono = wall - time.time() + time.monotonic()  # nobody steps the machine's own clock
    return {"at": wall, "mono": mono, "node": node, "held": bool(reason), "reason": reason}

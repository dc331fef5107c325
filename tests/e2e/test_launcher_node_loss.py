"""The node of the launcher fails under a real Slurm: the job is queued again, although --no-kill keeps it running."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from slurm_batch import Batch

from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from tests.conftest import skip_or_fail

pytestmark = pytest.mark.slurm

ESTABLISHED = "01"  # of a row of /proc/net/tcp


class Nodes:
    """A Slurm of its own, whose nodes can fail."""

    def __init__(self, place: Path, programs: SupervisedPrograms) -> None:
        self._programs = programs
        shape = ClusterShape(nodes=("node1", "node2"), settings={"SlurmdTimeout": "9"})
        self.cluster = SlurmCluster(place, programs, shape)
        self.cluster.start()

    def fail(self, node: str) -> None:
        """End everything there at once, as a machine does that loses its power."""
        self._programs.stop(f"slurmd-{node}")
        tasks = self.processes(node)
        steps = {parent for pid in tasks if (parent := _parent(pid)) not in tasks}
        for pid in (*steps, *tasks):  # first the daemons of the steps, which would report the tasks' ends
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, node: str) -> set[int]:
        """What Slurm started there."""
        wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.cluster.conf}".encode()}
        found = set()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if wanted <= set(entry.read_bytes().split(b"\0")):
                    found.add(int(entry.parent.name))
        return found


def _parent(pid: int) -> int:
    """0 if the process has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _is_connected(pid: int) -> bool:
    """Whether it is the watcher, and holds a connection."""
    with suppress(OSError):
        if b"batch_host_watcher" in Path(f"/proc/{pid}/cmdline").read_bytes():
            sockets = {each.readlink().name.strip("socket:[]") for each in Path(f"/proc/{pid}/fd").iterdir()}
            rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            return any(row[3] == ESTABLISHED and row[9] in sockets for row in rows)
    return False


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    if why := explain_missing_slurm():
        skip_or_fail(f"no Slurm here: {why}")
    with tempfile.TemporaryDirectory(prefix="gh-slurm-") as place, SupervisedPrograms(Path(place) / "log") as programs:
        yield Nodes(Path(place) / "slurm", programs)


def test_the_job_is_queued_again_when_the_launchers_node_fails(nodes: Nodes, tmp_path: Path) -> None:
    options = "--nodes 1 --spares 1 --gate off"
    job = Batch(nodes.cluster, tmp_path, 2, options, "exec sleep 600", exec_launcher=True)

    def state() -> str:
        shown = nodes.cluster.command("scontrol", "-o", "show", "job", job.id, check=False).split()
        return next((field.partition("=")[2] for field in shown if field.startswith("JobState=")), "")

    job.until(lambda: job.all("attempt_started"), "an attempt")
    job.until(lambda: any(map(_is_connected, nodes.processes("node2"))), "a watcher on the other node")
    assert state() == "RUNNING"

    nodes.fail("node1")

    job.until(lambda: job.all("requeuing"), "a request for a requeue")
    job.until(lambda: state() in ("PENDING", "CONFIGURING") or len(job.all("attempt_started")) > 1, "a queued job")

"""Requeues a job whose batch host is lost: `python -m healthd.launcher.backends.batch_host_watcher HOST PORT JOB [EVENTS]`.

The batch script, the launcher and every srun run on the job's first node. If that node fails, Slurm (seen with 22.05)
keeps a --no-kill job in state RUNNING, although nothing is left that could replace a rank or end the job. So the
launcher keeps this program on another node, with a connection to itself. Once the launcher cannot be reached and
slurmctld does not reach its node either, the program requeues the job.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from healthd.launcher.backends.slurm_command import run_slurm_command
from healthd.launcher.backends.slurm_requeue import Ask, requeue_job
from healthd.launcher.decisions.relaunch_policy import REQUEUE_EXIT
from healthd.launcher.decisions.requeue_policy import RequeueDecision, parse_job_fields
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.scheduler_backend import BackendError
from vocabulary.clock import SystemClock

END = b"end\n"  # what the launcher sends before it ends by itself
CONNECT_SECONDS = 10.0
# A host without power ends no connection: the kernel asks it after so many idle seconds, so often, so many times.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))
CONFIRMATIONS = 2  # so often in a row the launcher and its node must be unreachable
LOOK_SECONDS, LOOK_SECONDS_MAX = 5.0, 60.0  # between looks at the node, while the launcher cannot be reached
_ALIVE = frozenset({"RUNNING", "SUSPENDED"})
_UNREACHABLE = frozenset({"DOWN", "NOT_RESPONDING"})


class BatchHostState(enum.Enum):
    """What Slurm knows of the node that runs the batch script."""

    PRESENT = "present"
    LOST = "lost"
    JOB_ENDED = "job ended"
    UNKNOWN = "unknown"  # Slurm does not answer


class Connection(enum.Enum):
    """How one attempt to follow the launcher ended."""

    FAILED = "failed"  # the launcher could not be reached
    BROKEN = "broken"  # it was reached, and then lost
    ENDED = "ended"  # the launcher ended by itself


def judge_batch_host(job: Mapping[str, str], job_nodes: Collection[str], node: Mapping[str, str]) -> BatchHostState:
    """Judge from the fields of `scontrol show job` and of `scontrol show node` for the job's batch host.

    Args:
        job: the job's fields.
        job_nodes: the nodes that the job has now; Slurm removes a node that is down.
        node: the batch host's fields.
    """
    if job.get("JobState") not in _ALIVE:
        return BatchHostState.JOB_ENDED
    state = node.get("State", "")
    unreachable = "*" in state or not _UNREACHABLE.isdisjoint(state.split("+"))
    lost = unreachable or job.get("BatchHost") not in job_nodes
    return BatchHostState.LOST if lost else BatchHostState.PRESENT


def query_batch_host(ask: Ask, job_id: str) -> BatchHostState:
    """Ask Slurm."""
    try:
        job = parse_job_fields(ask(["scontrol", "-o", "show", "job", job_id]))
        if job.get("JobState") not in _ALIVE:
            return BatchHostState.JOB_ENDED
        listed = job.get("NodeList")
        nodes = ask(["scontrol", "show", "hostnames", listed]).split() if listed else []
        node = parse_job_fields(ask(["scontrol", "-o", "show", "node", job.get("BatchHost", "")]))
    except BackendError:
        return BatchHostState.UNKNOWN
    return judge_batch_host(job, nodes, node)


def follow_launcher(address: tuple[str, int]) -> Connection:
    """Hold a connection to the launcher until it ends."""
    try:
        connection = socket.create_connection(address, CONNECT_SECONDS)
    except OSError:
        return Connection.FAILED
    with connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.settimeout(None)
        with contextlib.suppress(OSError):
            if connection.recv(len(END)) == END:
                return Connection.ENDED
    return Connection.BROKEN


def wait_for_loss(
    follow: Callable[[], Connection], query: Callable[[], BatchHostState], pause: Callable[[float], object]
) -> bool:
    """Wait until the batch host is lost (True), or the launcher or the job has ended (False).

    A launcher that was never reached may be well behind a firewall, so that ends the wait as well.
    """
    lost = looks = 0
    known = False
    while True:
        connection = follow()
        known = known or connection is not Connection.FAILED
        state = query() if known and connection is not Connection.ENDED else BatchHostState.JOB_ENDED
        if state is BatchHostState.JOB_ENDED:
            return False
        reached = connection is not Connection.FAILED
        lost = 0 if reached or state is not BatchHostState.LOST else lost + 1
        if lost == CONFIRMATIONS:
            return True
        looks = 0 if reached or lost else looks + 1
        pause(min(LOOK_SECONDS * 2.0 ** min(looks, 16), LOOK_SECONDS_MAX))


def requeue_lost_job(ask: Ask, job_id: str, journal: LaunchJournal) -> None:
    """Requeue the job, and record it first: Slurm ends this process as well."""

    def announce(plan: RequeueDecision) -> None:
        text = "the node of the launcher is lost: requesting Slurm to requeue the job"
        journal.write("requeuing", text, without=plan.without, wait_seconds=plan.wait_seconds)

    try:
        requeue_job(ask, job_id, (), (), 0, announce)
    except BackendError as error:
        text = f"the node of the launcher is lost, and Slurm does not requeue the job ({error}): run scancel {job_id}"
        journal.write("stopped", text, code=REQUEUE_EXIT)


def main(argv: Sequence[str] = sys.argv) -> None:
    """Watch the launcher's node."""
    host, port, job_id, *events = argv[1:]
    ask = partial(run_slurm_command, check=True)
    if wait_for_loss(partial(follow_launcher, (host, int(port))), partial(query_batch_host, ask, job_id), time.sleep):
        requeue_lost_job(ask, job_id, LaunchJournal(Path(events[0]) if events else None, job_id, SystemClock()))


if __name__ == "__main__":
    main()

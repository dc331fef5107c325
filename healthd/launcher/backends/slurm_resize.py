"""Gives nodes of a running Slurm job back, and gets others, while its steps go on.

A drained node stays in the job's allocation for as long as the job runs, and is neither repaired nor tested meanwhile.
`scontrol update jobid=N NodeList=...` takes it out; a step started with --no-kill goes on without it. A node is added
through a second allocation (`salloc --dependency=expand:N`), which then gives its node to the job. Slurm permits that
only with SchedulerParameters=permit_job_expansion.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from healthd.launcher.decisions.requeue_policy import parse_job_fields
from healthd.launcher.scheduler_backend import BackendError

Ask = Callable[[Sequence[str]], str]  # runs a command and returns its output; raises BackendError
POLL_SECONDS = 0.2
END_SECONDS = 10.0
_GRANTED = re.compile(r"Granted job allocation (\d+)")
# What a second allocation must have in common with the job: fields of `scontrol show job`, options of salloc.
_SHARED_OPTIONS = {
    "Partition": "--partition",
    "Account": "--account",
    "QOS": "--qos",
    "Reservation": "--reservation",
    "TresPerNode": "--gres",
    "Features": "--constraint",
}


def release_node(ask: Ask, job_id: str, node: str, allocation: Sequence[str], batch_host: str) -> None:
    """Take a node out of the job's allocation. What runs there is killed; the job's other steps and nodes go on.

    Raises:
        BackendError: the batch script runs there, or Slurm refuses; the node stays.
    """
    if node == batch_host:
        raise BackendError(f"{node} runs the batch script, so the job cannot give it back before it ends")
    kept = [each for each in allocation if each != node]
    if kept and len(kept) < len(allocation):
        ask(["scontrol", "update", f"jobid={job_id}", f"NodeList={','.join(kept)}"])


def request_node(ask: Ask, job_id: str, environ: Mapping[str, str], stopped: Callable[[], bool]) -> str | None:
    """Wait in the queue for one more node, and add it to the job.

    Args:
        ask: runs Slurm's commands.
        job_id: of the running job.
        environ: for salloc.
        stopped: whether the node is not wanted any more.

    Returns:
        The node; None if `stopped`.

    Raises:
        BackendError: Slurm refuses.
    """
    job = parse_job_fields(ask(["scontrol", "-o", "show", "job", job_id]))
    shared = [f"{option}={job[field]}" for field, option in _SHARED_OPTIONS.items() if job.get(field)]
    name = f"--job-name=expand-{job_id}"
    argv = ["salloc", "--no-shell", "--nodes=1", "--no-kill", f"--dependency=expand:{job_id}", name, *shared]
    own = {key: value for key, value in environ.items() if not key.startswith(("SLURM_", "SALLOC_", "SBATCH_"))}
    if conf := environ.get("SLURM_CONF"):
        own["SLURM_CONF"] = conf
    granted = _allocate(argv, own, stopped)
    if granted is None:
        return None
    try:
        node = _find_node(ask, granted)
        ask(["scontrol", "update", f"jobid={granted}", "NumNodes=0"])
    except BackendError:
        ask(["scancel", granted])
        raise
    return node


def _find_node(ask: Ask, job_id: str) -> str:
    """The node of a job of one node."""
    listed = parse_job_fields(ask(["scontrol", "-o", "show", "job", job_id])).get("NodeList", "")
    nodes = ask(["scontrol", "show", "hostnames", listed]).split() if listed else []
    if not nodes:
        raise BackendError(f"job {job_id}, which was granted to give its node to this job, has none")
    return nodes[0]


def _allocate(argv: Sequence[str], environ: Mapping[str, str], stopped: Callable[[], bool]) -> str | None:
    """The id of the second allocation, once it is granted."""
    try:
        salloc = subprocess.Popen(
            argv, env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise BackendError(f"salloc cannot be started: {error}") from error
    while salloc.poll() is None and not stopped():
        time.sleep(POLL_SECONDS)
    if salloc.poll() is None:
        salloc.terminate()  # it withdraws its request
    try:
        said = salloc.communicate(timeout=END_SECONDS)[1]
    except subprocess.TimeoutExpired:
        salloc.kill()
        said = salloc.communicate()[1]
    found = _GRANTED.search(said)
    if found is None and not stopped():
        raise BackendError(f"{' '.join(argv)}: exit {salloc.returncode}: {said.strip()}")
    return found[1] if found else None

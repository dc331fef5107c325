"""Requeues a Slurm job, and sets where and when it may start again.

Slurm accepts these settings only for a pending job, hence after the requeue, and meanwhile ends this process: SIGTERM
at once, also to running commands, SIGKILL after KillWait, or at once if the batch script's shell ends on SIGTERM. So
the caller records the decision before the requeue. Slurm uses the later of this start time and its own (two minutes,
until old credentials expire).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from healthd.launcher import stderr_writer
from healthd.launcher.decisions.requeue_policy import (
    RequeueDecision,
    compute_requeue_delay,
    explain_missing_exclusion,
    parse_job_fields,
    parse_partition_nodes,
)
from healthd.launcher.scheduler_backend import Announce, BackendError

TRIES = 3  # the first may be killed together with this process
REQUEUED_STATES = ("COMPLETING", "PENDING")

Ask = Callable[[Sequence[str]], str]  # runs a command and returns its output; raises BackendError


def requeue_job(
    ask: Ask, job_id: str, allocation: Sequence[str], refused: Collection[str], in_vain: int, announce: Announce
) -> RequeueDecision:
    """Requeue the job without the refused nodes, or else after a wait that grows with each failed requeue.

    `announce` is called with the decision just before the requeue: this process may not live to report the outcome.

    Raises:
        BackendError: Slurm does not requeue it.
    """
    excluded, why = _compute_exclusions(ask, job_id, allocation, refused) if refused else ((), "")
    seconds = compute_requeue_delay(in_vain)
    plan = RequeueDecision(tuple(sorted(refused))) if excluded else _delay_requeue(seconds, why)
    announce(plan)
    _send_requeue(ask, job_id)
    if excluded:
        try:
            _update_job(ask, job_id, f"ExcNodeList={','.join(excluded)}")
        except BackendError as error:
            plan = _delay_requeue(seconds, str(error))
        else:
            return plan
    if seconds:
        try:
            _update_job(ask, job_id, f"StartTime=now+{seconds:g}")
        except BackendError as error:
            return RequeueDecision(note=str(error))
    return plan


def _delay_requeue(seconds: float, why: str) -> RequeueDecision:
    """Return a decision that excludes no node, with the reason."""
    return RequeueDecision(wait_seconds=seconds, note=f"it may get the same nodes: {why}" if why else "")


def _compute_exclusions(
    ask: Ask, job_id: str, allocation: Sequence[str], refused: Collection[str]
) -> tuple[tuple[str, ...], str]:
    """Return all nodes to exclude, including the owner's exclusions, or none and the reason.

    Queried while the job runs.
    """
    try:
        job = parse_job_fields(ask(["scontrol", "-o", "show", "job", job_id]))
        features = "Features" in job
        listing = ask(["sinfo", "-h", "-N", "-p", job.get("Partition", ""), "-o", "%N|%c|%G|%f"])
        known = ask(["scontrol", "show", "hostnames", job["ExcNodeList"]]).split() if "ExcNodeList" in job else []
    except BackendError as error:
        return (), str(error)
    why = explain_missing_exclusion(
        refused, allocation, job, parse_partition_nodes(listing, with_features=features), known
    )
    return ((), why) if why else (tuple(sorted({*known, *refused})), "")


def _send_requeue(ask: Ask, job_id: str) -> None:
    """Requeue the job. Slurm's SIGTERM may end the command before its answer, so a failure may not be one."""
    try:
        ask(["scontrol", "requeue", job_id])
    except BackendError:
        if parse_job_fields(ask(["scontrol", "-o", "show", "job", job_id])).get("JobState") not in REQUEUED_STATES:
            raise


def _update_job(ask: Ask, job_id: str, change: str) -> None:
    command = ["scontrol", "update", f"jobid={job_id}", change]
    for _ in range(TRIES - 1):
        try:
            ask(command)
        except BackendError as error:
            stderr_writer.write_launcher_line(f"{error}; retrying")
        else:
            return
    ask(command)

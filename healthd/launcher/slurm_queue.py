"""Giving a job of Slurm's back to its queue, and telling Slurm where and when it may start again.

Slurm takes either only of a job that waits, hence after the requeue, and ends this process meanwhile: SIGTERM at once, also to the
commands we run, SIGKILL after KillWait, or at once where the batch script's own shell ends on SIGTERM. So the caller records what is
to happen before the requeue. Slurm keeps the later of our time and its own (two minutes, until old credentials run out).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from healthd.launcher import voice
from healthd.launcher.backend import Announce, BackendError
from healthd.launcher.coming_back import Return, job_fields, peers_of, wait_seconds, why_not_without

TRIES = 3  # the first may be ended together with us
REQUEUED_STATES = ("COMPLETING", "PENDING")

Ask = Callable[[Sequence[str]], str]  # a command's answer; raises BackendError


def queue_again(
    ask: Ask, job_id: str, allocation: Sequence[str], refused: Collection[str], in_vain: int, announce: Announce
) -> Return:
    """Requeue the job; without the nodes that it refuses, or else after a wait that grows with each time in vain.

    `announce` is called with the plan just before the requeue: this process may not live to report the outcome.

    Raises:
        BackendError: Slurm does not requeue it.
    """
    excluded, why = _exclusion(ask, job_id, allocation, refused) if refused else ((), "")
    seconds = wait_seconds(in_vain)
    plan = Return(tuple(sorted(refused))) if excluded else _waiting(seconds, why)
    announce(plan)
    _requeue(ask, job_id)
    if excluded:
        try:
            _update(ask, job_id, f"ExcNodeList={','.join(excluded)}")
        except BackendError as error:
            plan = _waiting(seconds, str(error))
        else:
            return plan
    if seconds:
        try:
            _update(ask, job_id, f"StartTime=now+{seconds:g}")
        except BackendError as error:
            return Return(note=str(error))
    return plan


def _waiting(seconds: float, why: str) -> Return:
    """A return that excludes no node, and why not."""
    return Return(wait_seconds=seconds, note=f"it may get the same nodes: {why}" if why else "")


def _exclusion(
    ask: Ask, job_id: str, allocation: Sequence[str], refused: Collection[str]
) -> tuple[tuple[str, ...], str]:
    """All that the job is to exclude, what its owner excluded among it; or nothing, and why. Asked while it still runs."""
    try:
        job = job_fields(ask(["scontrol", "-o", "show", "job", job_id]))
        features = "Features" in job
        listing = ask(["sinfo", "-h", "-N", "-p", job.get("Partition", ""), "-o", "%N|%c|%G|%f"])
        known = ask(["scontrol", "show", "hostnames", job["ExcNodeList"]]).split() if "ExcNodeList" in job else []
    except BackendError as error:
        return (), str(error)
    why = why_not_without(refused, allocation, job, peers_of(listing, with_features=features), known)
    return ((), why) if why else (tuple(sorted({*known, *refused})), "")


def _requeue(ask: Ask, job_id: str) -> None:
    """Requeue the job. Slurm's SIGTERM may end the command before it has the answer, so a failure may be none."""
    try:
        ask(["scontrol", "requeue", job_id])
    except BackendError:
        if job_fields(ask(["scontrol", "-o", "show", "job", job_id])).get("JobState") not in REQUEUED_STATES:
            raise


def _update(ask: Ask, job_id: str, change: str) -> None:
    command = ["scontrol", "update", f"jobid={job_id}", change]
    for _ in range(TRIES - 1):
        try:
            ask(command)
        except BackendError as error:
            voice.say(f"{error}; once more")
        else:
            return
    ask(command)

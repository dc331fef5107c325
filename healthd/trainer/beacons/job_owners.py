# Raw files of /proc are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH116, PTH123
"""Determines a job's owner. Any user may write a page with any job's name; only one of them runs that job.

Only the scheduler knows: no other user can put a process into its control group of the job. Without that, everything
else that this node can see can be forged, such as who came first or who answers; so no user is treated as the owner,
and none is excluded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from healthd.trainer.beacons.page_reader import BeaconView

_SLURM_GROUP = re.compile(r"/(?:system\.slice/)?(?:[\w.-]+_)?slurm[^/]*/(?:uid_\d+/)?job_(\d+)(?:/|$)")


class JobClaim(NamedTuple):
    """A page's claim that its user runs a job."""

    path: str
    job: str
    uid: int
    pid: int
    alive: bool


class JobClaimants(NamedTuple):
    """The users with living pages of a job: possible owners, and those that the scheduler rules out."""

    users: tuple[int, ...]
    strangers: tuple[int, ...] = ()

    @property
    def disputed(self) -> bool:
        """Whether there is more than one."""
        return len(self.users) + len(self.strangers) > 1

    @property
    def told(self) -> str:
        """A description for people."""
        users = ", ".join(map(str, self.users))
        if self.strangers:
            strangers = ", ".join(map(str, self.strangers))
            return f"user {strangers} also claims the job, but it belongs to user {users}: the scheduler runs it as that user"
        return (
            f"users {users} claim the job, and no scheduler reports the owner: the ranks of all are shown and ordered"
        )


def read_job_claim(view: BeaconView) -> JobClaim:
    """Return a page's claim."""
    return JobClaim(view.path, view.identity.job, view.uid, view.identity.pid, view.alive)


def find_job_claimants(claims: Iterable[JobClaim], proc: str = "/proc") -> dict[str, JobClaimants]:
    """Return each job's possible owners by job name. A job without living processes has none.

    Args:
        claims: the pages of this node.
        proc: the proc file system; for tests.
    """
    by_job: dict[str, list[JobClaim]] = {}
    for claim in claims:
        if claim.alive:
            by_job.setdefault(claim.job, []).append(claim)
    return {job: _resolve_claims(listed, proc) for job, listed in by_job.items()}


def _resolve_claims(claims: list[JobClaim], proc: str) -> JobClaimants:
    users = {claim.uid for claim in claims}
    if len(users) == 1:
        return JobClaimants(tuple(users))
    placed = {claim.uid for claim in claims if is_placed_by_scheduler(claim, proc)} or users
    return JobClaimants(tuple(sorted(placed)), tuple(sorted(users - placed)))


def is_placed_by_scheduler(claim: JobClaim, proc: str = "/proc") -> bool:
    """Return whether Slurm's control group of that job holds the page's process: no user can move it there."""
    return claim.job in _read_scheduler_jobs(claim.pid, proc)


def find_scheduler_jobs(pid: int, uid: int, proc: str = "/proc") -> frozenset[str]:
    """Return the Slurm jobs whose control groups hold a process; none if it is no longer this user's."""
    try:
        if os.stat(f"{proc}/{pid}").st_uid != uid:  # the number may be another process's by now
            return frozenset()
    except OSError:
        return frozenset()
    return _read_scheduler_jobs(pid, proc)


def _read_scheduler_jobs(pid: int, proc: str) -> frozenset[str]:
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            groups = [line.rstrip("\n").split(":", 2)[-1] for line in file]
    except OSError:
        return frozenset()
    return frozenset(match[1] for match in map(_SLURM_GROUP.match, groups) if match is not None)

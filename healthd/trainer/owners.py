# Raw files of /proc and of the kernel are the subject here; pathlib has no words for them.
# ruff: noqa: PTH116, PTH123
"""Whose is a job? Any user may put a page with any job's name into the directory; only one of them runs that job.

What decides cannot be forged by who writes a page: in which of the scheduler's control groups the page's process is, then
whose file is older. It is looked up only where users differ.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from healthd.trainer.pages import BeaconView

_SLURM_GROUP = re.compile(r"/(?:system\.slice/)?(?:[\w.-]+_)?slurm[^/]*/(?:uid_\d+/)?job_(\d+)(?:/|$)")
_STATX_BTIME, _STATX_BYTES, _BORN_AT = 0x800, 256, 80  # mask, size and offset in Linux's struct statx
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100


class Claim(NamedTuple):
    """A page's say that its user runs a job."""

    path: str
    job: str
    uid: int
    pid: int
    alive: bool


class Owner(NamedTuple):
    """Whose a job is held to be, which other users have living pages of it, and why it is not theirs."""

    uid: int
    others: tuple[int, ...] = ()
    by: str = ""

    @property
    def told(self) -> str:
        """For people."""
        others = ", ".join(map(str, self.others))
        return f"user {others} claims the job too; it is held to be user {self.uid}'s: {self.by}"


def claim_of(view: BeaconView) -> Claim:
    """What a page claims."""
    return Claim(view.path, view.identity.job, view.uid, view.identity.pid, view.alive)


def owners_of(claims: Iterable[Claim], proc: str = "/proc") -> dict[str, Owner]:
    """Whose each job is, by its name. A job of which nobody lives has no owner.

    Args:
        claims: the pages of this node. A dead one shows since when its user has had the job, if another of his lives.
        proc: where the processes are; for tests.
    """
    by_job: dict[str, list[Claim]] = {}
    for claim in claims:
        by_job.setdefault(claim.job, []).append(claim)
    return {job: _owner(listed, proc) for job, listed in by_job.items() if any(claim.alive for claim in listed)}


def _owner(claims: list[Claim], proc: str) -> Owner:
    users = sorted({claim.uid for claim in claims if claim.alive})
    if len(users) == 1:
        return Owner(users[0])
    placed = {claim.uid for claim in claims if claim.alive and placed_by_scheduler(claim, proc)}
    if len(placed) == 1:
        (uid,) = placed
        by = "the scheduler runs it as that user"
    else:
        uid = min((claim for claim in claims if claim.uid in users), key=lambda claim: born(claim.path)).uid
        by = "that user's page is the oldest"
    return Owner(uid, tuple(other for other in users if other != uid), by)


def placed_by_scheduler(claim: Claim, proc: str = "/proc") -> bool:
    """Whether Slurm's control group of the job with that number holds the page's process: no user can move it there."""
    try:
        with open(f"{proc}/{claim.pid}/cgroup", encoding="utf-8", errors="replace") as file:
            groups = [line.rstrip("\n").split(":", 2)[-1] for line in file]
    except OSError:
        return False
    return any(match is not None and match[1] == claim.job for match in map(_SLURM_GROUP.match, groups))


def born(path: str) -> float:
    """When a file was made, UTC seconds; where the file system does not know, when it was last changed in any way.

    Neither can be set by its owner. A file that is gone is the youngest of all.
    """
    try:
        changed = os.stat(path, follow_symlinks=False).st_ctime
    except OSError:
        return float("inf")
    libc, told = ctypes.CDLL(None), ctypes.create_string_buffer(_STATX_BYTES)
    statx = getattr(libc, "statx", None)
    asked = statx is not None and statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, told) == 0
    if not asked or not int.from_bytes(told.raw[:4], "little") & _STATX_BTIME:
        return changed
    seconds = int.from_bytes(told.raw[_BORN_AT : _BORN_AT + 8], "little", signed=True)
    return seconds + int.from_bytes(told.raw[_BORN_AT + 8 : _BORN_AT + 12], "little") / 1e9

"""The endpoint by which a launcher hands its job's swaps to healthd: for the job's own user only.

Pages and people read what is said here; nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from healthd.swap_reports.swap_register import SwapRegister
from healthd.trainer.beacons.job_owners import JobClaimants, find_scheduler_jobs
from vocabulary.clock import Clock
from vocabulary.messages.message_bounds import holds_nul
from vocabulary.messages.swap_messages import JobSwap, JobSwaps
from vocabulary.messages.wire import Problem, encode_message

Answer = tuple[int, str, bytes]


class Caller(NamedTuple):
    """The process that calls, as the kernel names it."""

    uid: int
    pid: int


class SwapEndpoint:
    """The endpoint. `claimants` returns the users with living pages on this node, by job."""

    def __init__(self, claimants: Callable[[], Mapping[str, JobClaimants]], clock: Clock, proc: str = "/proc") -> None:
        self._claimants, self._clock, self._proc = claimants, clock, proc
        self._register = SwapRegister()

    def answer(self, body: bytes, caller: Caller) -> Answer:
        """Return status code, content type and body for a POST."""
        if not self._register.admit(caller.uid, self._clock.monotonic()):
            return _make_problem_answer(429, "too many messages about swaps", "send the newest once a second")
        try:
            said = msgspec.json.decode(body, type=JobSwaps)
            encode_message(said)  # a lone surrogate cannot be passed on
        # RecursionError: brackets nested too deeply.
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return _make_problem_answer(400, f"these are no swaps: {error}", "see docs/reference/healthd.md")
        if holds_nul(body) or any(swap.job != said.job for swap in said.swaps):
            return _make_problem_answer(400, "a text holds NUL, or a swap is another job's", "send one job's swaps")
        now = self._clock.monotonic()
        known = self._register.owner(said.job, now) == caller.uid
        refusal = judge_launcher(said.job, caller, self._claimants(), known=known, proc=self._proc)
        if refusal:
            return _make_problem_answer(403, refusal, "send it from the job's launcher, beside its ranks")
        self._register.put(caller.uid, said.job, said.swaps, now)
        return 200, "application/json", b"{}"

    def current(self) -> tuple[JobSwap, ...]:
        """Return what reports say of all jobs here. Callable from any thread."""
        return self._register.current(self._clock.monotonic())


def judge_launcher(
    job: str, caller: Caller, claimants: Mapping[str, JobClaimants], *, known: bool = False, proc: str = "/proc"
) -> str:
    """Return why this process may not speak for a job; empty if it may.

    Slurm's control group decides where the caller is in one. Elsewhere its user must be the only one with living ranks
    of the job on this node; `known`: it was, until these ranks were lost or ejected.
    """
    placed = find_scheduler_jobs(caller.pid, caller.uid, proc)
    if job in placed:
        return ""
    if placed and job.isdecimal():
        return f"the scheduler runs the caller in job {', '.join(sorted(placed))}, not in {job}"
    claimed = claimants.get(job)
    if claimed is None:
        return "" if known else f"no rank of job {job} runs on this node"
    if claimed.users != (caller.uid,):
        return f"job {job} is not known to be user {caller.uid}'s alone"
    return ""


def _make_problem_answer(code: int, error: str, todo: str) -> Answer:
    return code, "application/json", encode_message(Problem(error=error, todo=todo))

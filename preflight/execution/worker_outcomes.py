"""What the end of a test's processes says: results as they were given, hangs, crashes, and who kept the others waiting. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from preflight.results import Outcome, Result

MACHINE_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")  # the processor itself refused an instruction


class WorkerExit(str, enum.Enum):
    """How one process came out of a test."""

    DONE = "done"
    RAISED = "raised"  # an exception ended the test, the process lives
    HUNG = "hung"
    GONE = "gone"  # the process ended


class WorkerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One process at the end of one test.

    `device` is empty for the node's. `doing` is what it announced last, `step` how many times it announced something. Of one that is
    gone `killed_by` names the signal, or else `code` is its exit code; `noise` is the last line it left on standard error.
    """

    device: str
    how: WorkerExit
    results: tuple[Result, ...] = ()
    doing: str = ""
    step: int = 0
    seconds: float = 0.0
    watchdog_s: float = 0.0
    code: int = 0
    killed_by: str = ""
    noise: str = ""


def build_worker_results(test: str, ending: WorkerOutcome) -> tuple[Result, ...]:
    """The results of a process that waits for no other. There is at least one."""
    if ending.how is WorkerExit.HUNG:
        reason = f"no end within {ending.watchdog_s:g} s; last seen at: {ending.doing}"
        return (*ending.results, _build_result(test, ending, Outcome.HANG, reason))
    if ending.how is WorkerExit.GONE:
        outcome = Outcome.FAIL if ending.killed_by in MACHINE_SIGNALS else Outcome.ERROR
        reason = f"its process {describe_exit(ending)} at: {ending.doing}; {ending.noise or 'it left no message'}"
        return (*ending.results, _build_result(test, ending, outcome, reason))
    return ending.results or (_build_result(test, ending, Outcome.ERROR, "the test had nothing to say"),)


def describe_exit(ending: WorkerOutcome) -> str:
    """How a process that is gone ended, in words."""
    return f"was killed by {ending.killed_by}" if ending.killed_by else f"ended with {ending.code}"


def build_peer_results(test: str, endings: Sequence[WorkerOutcome]) -> tuple[Result, ...]:
    """The results of processes that wait for each other.

    Whose process is gone is to blame before one that raised an exception, and that before one that hangs; of those that hang, the ones
    which announced less than others: they never came to where the others wait. If all came to the same place, each hangs. Who only
    waited is not run, and not accused. A device may have nothing to say if another spoke for it.
    """
    at_fault = find_blamed_workers(endings)
    results: list[Result] = []
    for ending in endings:
        if ending in at_fault:
            results += _build_accused_results(test, ending, endings)
        elif ending.how is WorkerExit.DONE:
            results += ending.results
        else:
            what = " and ".join(f"{other.device}, last seen at: {other.doing}" for other in at_fault)
            results.append(_build_result(test, ending, Outcome.NOT_RUN, f"at {ending.doing}, it waited for {what}"))
    if not results:
        return tuple(_build_result(test, ending, Outcome.ERROR, "the test had nothing to say") for ending in endings)
    return tuple(results)


def find_blamed_workers(endings: Sequence[WorkerOutcome]) -> list[WorkerOutcome]:
    """Those of a broken-off test of peers who are to blame; nobody if all are done."""
    for how in (WorkerExit.GONE, WorkerExit.RAISED):
        if found := [ending for ending in endings if ending.how is how]:
            return found
    hung = [ending for ending in endings if ending.how is WorkerExit.HUNG]
    least = min((ending.step for ending in hung), default=0)
    return [ending for ending in hung if ending.step == least]


def _build_accused_results(test: str, ending: WorkerOutcome, endings: Sequence[WorkerOutcome]) -> tuple[Result, ...]:
    ahead = [other for other in endings if other.step > ending.step or other.how is WorkerExit.DONE]
    if ending.how is not WorkerExit.HUNG or not ahead:
        return build_worker_results(test, ending)
    other = ahead[0]
    where = "was done" if other.how is WorkerExit.DONE else f"waited at: {other.doing}"
    reason = (
        f"did not arrive within {ending.watchdog_s:g} s; last seen at: {ending.doing}, while {other.device} {where}"
    )
    return (*ending.results, _build_result(test, ending, Outcome.HANG, reason))


def _build_result(test: str, ending: WorkerOutcome, outcome: Outcome, reason: str) -> Result:
    return Result(test=test, outcome=outcome, device=ending.device, reason=reason, seconds=ending.seconds)

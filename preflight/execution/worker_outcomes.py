"""Results from the end of a test's processes: their own results, hangs, crashes, and the process that blocked the others. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from preflight.execution.cuda_errors import INCONCLUSIVE, judge_error_text, names_peer_access
from preflight.results import Outcome, Result
from preflight.worker_messages import JOINING

ABORT = "SIGABRT"  # a library gave up, as NCCL's watchdog does, and printed why
MACHINE_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")  # the CPU itself rejected an instruction


class WorkerExit(str, enum.Enum):
    """How a process ended a test."""

    DONE = "done"
    RAISED = "raised"  # an exception ended the test, the process lives
    HUNG = "hung"
    GONE = "gone"  # the process ended


class WorkerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One process at the end of one test.

    `device` is empty for the node's process. `doing` is the last announced step, `step` the number of announcements. For an
    ended process `killed_by` names the signal, or else `code` is its exit code; `noise` is its last line on standard error, or
    the last one that names an error of CUDA.
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

    @property
    def joining(self) -> bool:
        """The process group over all devices did not start in time."""
        return self.how is WorkerExit.HUNG and self.doing == JOINING


def build_worker_results(test: str, ending: WorkerOutcome) -> tuple[Result, ...]:
    """The results of a process that waits for no other. There is at least one."""
    if ending.joining:
        reason = f"NCCL (on the host gloo) did not start within {ending.watchdog_s:g} s; which device or setting is the cause is unknown"
        return (*ending.results, _build_result(test, ending, Outcome.ERROR, reason))
    if ending.how is WorkerExit.HUNG:
        reason = f"did not end within {ending.watchdog_s:g} s; last seen at: {ending.doing}"
        return (*ending.results, _build_result(test, ending, Outcome.HANG, reason))
    if ending.how is WorkerExit.GONE:
        return (*ending.results, _build_exit_result(test, ending))
    return ending.results or (_build_result(test, ending, Outcome.ERROR, "the test reported no result"),)


def _build_exit_result(test: str, ending: WorkerOutcome) -> Result:
    meaning = judge_error_text(ending.noise) if ending.killed_by == ABORT else INCONCLUSIVE
    outcome = Outcome.FAIL if ending.killed_by in MACHINE_SIGNALS else meaning.outcome
    words = f"its process {describe_exit(ending)} at: {ending.doing}; {ending.noise or 'it left no message'}"
    result = _build_result(test, ending, outcome, meaning.build_reason(words))
    return msgspec.structs.replace(result, misconfigured=meaning.misconfigured)


def describe_exit(ending: WorkerOutcome) -> str:
    """How an ended process ended, as text."""
    return f"was killed by {ending.killed_by}" if ending.killed_by else f"ended with {ending.code}"


def build_peer_results(test: str, endings: Sequence[WorkerOutcome]) -> tuple[Result, ...]:
    """The results of processes that wait for each other.

    Ended processes and those with a failed device are blamed first, then those that raised another exception, then those that
    hang; of these, the ones with the fewest announcements, which never reached the common step. If all reached the same step,
    each hangs. A process that only waited is 'not run'. A device without a result is possible if another device's result covers it.
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
        return tuple(_build_result(test, ending, Outcome.ERROR, "the test reported no result") for ending in endings)
    return tuple(results)


def find_blamed_workers(endings: Sequence[WorkerOutcome]) -> list[WorkerOutcome]:
    """The processes to blame for an aborted test of peers; empty if all finished."""
    for accused in (_has_failed_first, _has_failed, _has_raised):
        if found := [ending for ending in endings if accused(ending)]:
            return found
    hung = [ending for ending in endings if ending.how is WorkerExit.HUNG]
    least = min((ending.step for ending in hung), default=0)
    return [ending for ending in hung if ending.step == least]


def _has_failed_first(ending: WorkerOutcome) -> bool:
    """It failed otherwise than by an access to a peer's memory, which may follow from the end of the peer's process."""
    words = (ending.noise, *(result.reason for result in ending.results))
    return _has_failed(ending) and not any(map(names_peer_access, words))


def _has_failed(ending: WorkerOutcome) -> bool:
    """It ended, or raised an error of its own device, which the errors of the others can only follow."""
    failed = any(result.outcome is Outcome.FAIL for result in ending.results)
    return ending.how is WorkerExit.GONE or (_has_raised(ending) and failed)


def _has_raised(ending: WorkerOutcome) -> bool:
    return ending.how is WorkerExit.RAISED


def _build_accused_results(test: str, ending: WorkerOutcome, endings: Sequence[WorkerOutcome]) -> tuple[Result, ...]:
    ahead = [other for other in endings if other.step > ending.step or other.how is WorkerExit.DONE]
    if ending.how is not WorkerExit.HUNG or ending.joining or not ahead:
        return build_worker_results(test, ending)
    other = ahead[0]
    where = "had finished" if other.how is WorkerExit.DONE else f"waited at: {other.doing}"
    reason = (
        f"did not arrive within {ending.watchdog_s:g} s; last seen at: {ending.doing}, while {other.device} {where}"
    )
    return (*ending.results, _build_result(test, ending, Outcome.HANG, reason))


def _build_result(test: str, ending: WorkerOutcome, outcome: Outcome, reason: str) -> Result:
    return Result(test=test, outcome=outcome, device=ending.device, reason=reason, seconds=ending.seconds)

"""Sends a request to several processes and waits until each has answered, ended, or exceeded its deadline."""

from __future__ import annotations

import select
import signal
from collections.abc import Sequence

from preflight.execution.worker_outcomes import WorkerExit, WorkerOutcome
from preflight.execution.worker_process import TestProcess
from preflight.host.counter_records import CounterReading
from preflight.host.nvml_recording import NvmlRecording
from preflight.plan import JOIN_WATCHDOG_S, START_WATCHDOG_S
from preflight.results import Outcome, Result
from preflight.worker_messages import (
    JOINING,
    STARTING,
    DeviceReady,
    DeviceRefused,
    GpuInventory,
    ProgressUpdate,
    Request,
    ResultMessage,
    RunRequest,
)
from vocabulary.clock import Clock

LISTEN_S = 1.0  # per poll
PAUSED_S = 3.0  # later than planned: then this machine was suspended, and no deadline advanced
PEER_GRACE_S = 10.0  # time for a test's other devices after one has ended: they wait for it in vain


class WorkerRequest:
    """One process's request, and its outcome."""

    def __init__(self, process: TestProcess, request: Request, watchdog_s: float, clock: Clock) -> None:
        """Send the request. The watchdog starts when the test begins: imports and NCCL's start have limits of their own."""
        self.process = process
        self.watchdog_s = watchdog_s
        self.doing = STARTING
        self.step = 0
        self.results: list[Result] = []
        self.answer: (
            GpuInventory | CounterReading | NvmlRecording | DeviceReady | DeviceRefused | ResultMessage | None
        ) = None
        self.hung = self.gone = False
        self._clock = clock
        self._test = request.test if isinstance(request, RunRequest) else ""
        self._started = not isinstance(request, RunRequest)
        self.began = clock.monotonic()
        self.deadline = self.began + watchdog_s + (0.0 if self._started else START_WATCHDOG_S)
        process.ask(request)

    @property
    def open(self) -> bool:
        """The outcome is not final yet."""
        return self.answer is None and not self.hung and not self.gone

    @property
    def broken(self) -> bool:
        """Its process ended, or its test raised an exception: waiting for it is pointless."""
        return self.gone or (isinstance(self.answer, ResultMessage) and self.answer.raised)

    def hear(self, ready: Sequence[int]) -> None:
        """Process new answers."""
        for said in self.process.read(ready):
            if isinstance(said, ProgressUpdate):
                self._now(said)
            elif isinstance(said, ResultMessage):
                if said.result is not None:
                    self.results.append(said.result)
                self.answer = said if said.last else None
            else:
                self.answer = said
        if self.process.garbled:
            reason = f"the worker's answer cannot be read: {self.process.garbled}"
            result = Result(test=self._test, outcome=Outcome.ERROR, device=self.process.name, reason=reason)
            self.results.append(result)
            self.answer = ResultMessage(None, last=True, raised=True)
        elif self.answer is None and self.process.silent:
            self.gone = True

    def _now(self, now: ProgressUpdate) -> None:
        if now.doing == JOINING:
            self._started = False
            self.deadline = self._clock.monotonic() + JOIN_WATCHDOG_S
        elif not self._started and now.doing != STARTING:  # imports are done, the test begins
            self._started = True
            self.deadline = self._clock.monotonic() + self.watchdog_s
        self.doing, self.step = now.doing, now.step

    def excuse(self, seconds: float) -> None:
        """Extend the deadline by this much."""
        self.deadline += seconds

    def hurry(self, seconds: float) -> None:
        """Limit the remaining time to this much."""
        self.deadline = min(self.deadline, self._clock.monotonic() + seconds)


def await_answers(turns: Sequence[WorkerRequest], clock: Clock, *, together: bool = False) -> None:
    """Return when no request is open.

    Args:
        turns: the requests.
        clock: the time for deadlines.
        together: they wait for each other, so that after a failure the others get only `PEER_GRACE_S`.
    """
    hurried, listened = False, clock.monotonic()
    while pending := [turn for turn in turns if turn.open]:
        silent = any(turn.process.silent for turn in pending)
        left_s = min(turn.deadline for turn in pending) - listened
        listen_s = 0.0 if silent else min(max(0.0, left_s), LISTEN_S)
        descriptors = [descriptor for turn in pending for descriptor in turn.process.readable]
        ready = select.select(descriptors, [], [], listen_s)[0]
        now = clock.monotonic()
        late_s, listened = now - listened - listen_s, now
        for turn in pending:
            if late_s > PAUSED_S:
                turn.excuse(late_s)
            turn.hear(ready)  # first: it may have answered in the meantime
            turn.hung = turn.open and now >= turn.deadline
        if together and not hurried and any(turn.broken for turn in turns):
            hurried = True
            for turn in pending:
                turn.hurry(PEER_GRACE_S)


def conclude_request(turn: WorkerRequest, clock: Clock) -> WorkerOutcome:
    """The outcome of a request that is no longer open."""
    if turn.hung:
        how, code = WorkerExit.HUNG, 0
    elif turn.gone:
        how, code = WorkerExit.GONE, turn.process.code()
    else:
        how, code = (WorkerExit.RAISED if turn.broken else WorkerExit.DONE), 0
    return WorkerOutcome(
        device=turn.process.name,
        how=how,
        results=tuple(turn.results),
        doing=turn.doing,
        step=turn.step,
        seconds=round(clock.monotonic() - turn.began, 1),
        watchdog_s=JOIN_WATCHDOG_S if turn.doing == JOINING else turn.watchdog_s,
        code=code,
        killed_by=signal_name(-code) if code < 0 else "",
        noise=turn.process.noise() if turn.gone else "",
    )


def signal_name(number: int) -> str:
    """The name of a signal; most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

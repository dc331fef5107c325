"""The launcher's loop: gate, start, watch, judge, and again. The decisions are `plan`'s."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple

from healthd.launcher.backend import Attempt, Backend, BackendError, Run
from healthd.launcher.journal import Journal
from healthd.launcher.plan import (
    REQUEUE_EXIT,
    Choice,
    Fitness,
    Gate,
    History,
    Limits,
    Move,
    Outcome,
    RankEnd,
    Result,
    choose,
    judge,
    next_move,
)
from healthd.trainer.exits import Exit
from vocabulary.clock import Clock

POLL_SECONDS = 0.02
KILL_SECONDS = 30.0  # how long a killed step may take to be gone: a process in the driver's hands may never be
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Job(NamedTuple):
    """What to run, where, and how patiently."""

    command: tuple[str, ...]
    nodes: int
    ranks_per_node: int = 1
    gate: Gate = Gate.PREFER
    limits: Limits = Limits()
    leave_seconds: float = 30.0  # for a rank to leave after the first of its peers has
    stop_seconds: float = 30.0  # for the ranks to save and leave after the launcher was told to stop


class Launcher:
    """Runs one job to its end."""

    def __init__(self, job: Job, backend: Backend, journal: Journal, clock: Clock) -> None:
        self._job = job
        self._backend = backend
        self._journal = journal
        self._clock = clock
        self._stop = threading.Event()
        self._stop_signal = 0

    def run(self) -> int:
        """Attempt after attempt.

        Returns:
            The exit code: 0 done, 75 to be queued again, 128 + signal when told to stop, else the ranks' own.
        """
        previous = {number: signal.signal(number, self._on_signal) for number in _STOP_SIGNALS}
        try:
            return self._attempts()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _attempts(self) -> int:
        history, number, name = History(), self._journal.last_attempt(), self._backend.job()
        while True:
            choice = self._gate(history)
            if self._stop.is_set():
                return 128 + self._stop_signal
            if choice.nodes is None:
                return self._requeue(choice.why)
            number += 1
            attempt = Attempt(number, name, choice.nodes, self._job.ranks_per_node, self._job.command)
            result = self._attempt(attempt, choice.why)
            if self._stop.is_set() and result.outcome is not Outcome.DONE:
                self._journal.write("stopped", f"stopped by signal {self._stop_signal}", code=128 + self._stop_signal)
                return 128 + self._stop_signal
            history = history.after(result)
            move, why = next_move(result, history, self._job.limits)
            if move is Move.STOP:
                self._journal.write(
                    "stopped", f"{result.outcome.value}: {why}", outcome=result.outcome.value, code=result.code
                )
                return result.code

    def _gate(self, history: History) -> Choice:
        nodes = self._backend.nodes()
        candidates = [node for node in nodes if node not in history.excluded]
        asked = self._job.gate is not Gate.OFF
        verdicts = self._backend.ask(candidates) if asked and candidates else []
        choice = choose(nodes, self._job.nodes, history.excluded, verdicts, self._job.gate)
        if asked:
            said = {verdict.node: verdict for verdict in verdicts}
            words = {node: said[node].fitness.value if node in said else Fitness.UNKNOWN.value for node in candidates}
            text = "gate: " + (", ".join(f"{node} {word}" for node, word in words.items()) or "no node left to ask")
            reasons = {verdict.node: verdict.reason for verdict in verdicts if verdict.reason}
            self._journal.write("gate", text, verdicts=words, reasons=reasons)
        return choice

    def _attempt(self, attempt: Attempt, why: str) -> Result:
        text = f"attempt {attempt.number}: {attempt.world} ranks on {', '.join(attempt.nodes)} ({why})"
        facts = {"attempt": attempt.number, "nodes": attempt.nodes, "ranks_per_node": attempt.ranks_per_node}
        self._journal.write("attempt_started", text, **facts)
        began = self._clock.monotonic()
        try:
            ends = self._watch(self._backend.start(attempt), attempt)
        except BackendError as error:
            result = Result(Outcome.CRASHED, frozenset(), 1, str(error))
            ends = []
        else:
            result = judge(ends)
        seconds = self._clock.monotonic() - began
        self._journal.write(
            "attempt_ended",
            f"attempt {attempt.number}: {result.outcome.value} after {seconds:.1f} s: {result.why}",
            attempt=attempt.number,
            outcome=result.outcome.value,
            condemned=sorted(result.condemned),
            ranks=[end._asdict() for end in ends],
            seconds=round(seconds, 3),
        )
        return result

    def _watch(self, run: Run, attempt: Attempt) -> Sequence[RankEnd]:
        """Wait for the ranks; a rank that stays too long after its peers have left is killed."""
        told, kill_at = False, float("inf")
        try:
            while not run.over():
                now = self._clock.monotonic()
                if self._stop.is_set() and not told:
                    told, kill_at = True, min(kill_at, now + self._job.stop_seconds)
                    self._journal.write(
                        "stopping", "told to stop: asking the ranks to save and leave", attempt=attempt.number
                    )
                    run.terminate()
                if kill_at == float("inf") and any(end.code != Exit.DONE for end in run.ended()):
                    kill_at = now + self._job.leave_seconds
                if now >= kill_at:
                    return self._kill(run, attempt)
                time.sleep(POLL_SECONDS)
            return run.ended()
        finally:
            if not run.over():
                run.kill()

    def _kill(self, run: Run, attempt: Attempt) -> Sequence[RankEnd]:
        left = attempt.world - len(run.ended())
        self._journal.write(
            "killing", f"killing {left} ranks that stayed after their peers had left", attempt=attempt.number
        )
        run.kill()
        give_up_at = self._clock.monotonic() + KILL_SECONDS
        while not run.over() and self._clock.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
        known = {end.rank: end for end in run.ended()}
        gone = [
            RankEnd(rank, attempt.nodes[rank // attempt.ranks_per_node], None, killed=True)
            for rank in range(attempt.world)
        ]
        return [known.get(end.rank, end) for end in gone]

    def _requeue(self, why: str) -> int:
        if self._backend.requeue():
            self._journal.write(
                "requeued", f"no attempt possible here ({why}): the job is queued again", code=REQUEUE_EXIT
            )
        else:
            self._journal.write(
                "stopped", f"no attempt possible ({why}); exit {REQUEUE_EXIT}: queue it again", code=REQUEUE_EXIT
            )
        return REQUEUE_EXIT

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stop_signal = number
        self._stop.set()

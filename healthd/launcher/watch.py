"""Waits for the ranks of an attempt, asks them to leave when told to stop, and ends those that stay."""

from __future__ import annotations

import time
from collections.abc import Sequence

from healthd.launcher.backend import Attempt, Run
from healthd.launcher.job import Job
from healthd.launcher.journal import Journal
from healthd.launcher.plan import RankEnd
from healthd.launcher.returning_nodes import ReturningNodes
from healthd.launcher.second_look import SecondLook
from healthd.launcher.stop import Stop
from healthd.launcher.swapping import SwappingRun
from healthd.trainer.exits import Exit
from vocabulary.clock import Clock
from vocabulary.counts import counted

POLL_SECONDS = 0.02
KILL_SECONDS = 30.0  # how long a killed step may take to be gone: a process in the driver's hands may never be
_NEVER = float("inf")


class Watch:
    """One job's patience with its ranks."""

    def __init__(self, job: Job, journal: Journal, clock: Clock, stop: Stop) -> None:
        self._job = job
        self._journal = journal
        self._clock = clock
        self._stop = stop

    def ends(self, run: Run, attempt: Attempt, look: SecondLook, returning: ReturningNodes) -> Sequence[RankEnd]:
        """How each rank ended; one that stays too long after its first peer has left, or is done, is killed; all, on an unfit node."""
        told, kill_at, give_up_at = False, _NEVER, _NEVER
        try:
            while not run.over():
                now = self._clock.monotonic()
                if self._stop.asked() and not told:
                    told, kill_at = True, min(kill_at, now + self._job.stop_seconds)
                    text = f"told to stop by {self._stop.why}: asking the ranks to save and leave"
                    run.terminate()  # first the deed: a record may lie on a disk that hangs
                    self._journal.write("stopping", text, attempt=attempt.number)
                ends = run.ended()
                self._record(run, attempt)
                if isinstance(run, SwappingRun):
                    returning.poll(run, now)
                if kill_at == _NEVER and any(end.code != Exit.DONE for end in ends):
                    kill_at = now + self._job.leave_seconds
                if give_up_at == _NEVER and ends and self._job.done_seconds:
                    give_up_at = now + self._job.done_seconds
                if now >= kill_at:
                    return self._kill(run, attempt, "that stayed after their peers had left")
                if now >= give_up_at:
                    return self._kill(
                        run, attempt, f"that stayed {self._job.done_seconds:g} s after the first was done"
                    )
                if kill_at == _NEVER and not ends and look.finds_unfit(now):
                    return self._kill(run, attempt, "on nodes that have become unfit")
                time.sleep(POLL_SECONDS)
            return run.ended()
        finally:
            if not run.over():
                run.kill()
            run.clear()
            self._record(run, attempt)

    def _record(self, run: Run, attempt: Attempt) -> None:
        for event in run.take_events():
            self._journal.write(event.kind, event.text, attempt=attempt.number, **event.facts)

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until told to stop."""
        end = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end and not self._stop.asked():
            time.sleep(POLL_SECONDS)

    def _kill(self, run: Run, attempt: Attempt, when: str) -> Sequence[RankEnd]:
        left = len(run.rank_nodes) - len(run.ended())
        run.kill()
        text = f"killing {counted(left, 'rank')} {when}"
        self._journal.write("killing", text, attempt=attempt.number)
        give_up_at = self._clock.monotonic() + KILL_SECONDS
        while not run.over() and self._clock.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
        known = {end.rank: end for end in run.ended()}
        gone = [RankEnd(rank, node, None, killed=True) for rank, node in enumerate(run.rank_nodes)]
        return [known.get(end.rank, end) for end in gone]

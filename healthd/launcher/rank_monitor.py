"""Waits for the ranks of an attempt, requests them to leave on a stop, and kills those that stay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.decisions.startup_recheck import StartupRecheck
from healthd.launcher.job_definition import JobDefinition
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.process_groups.elastic_run import ElasticRun
from healthd.launcher.scheduler_backend import Attempt, AttemptRun
from healthd.launcher.stop_signals import StopSignals
from healthd.trainer.exit_codes import ExitCode
from vocabulary.clock import Clock
from vocabulary.text.plurals import format_count

POLL_SECONDS = 0.02
KILL_SECONDS = 30.0  # for a killed step to exit: a process in a driver call may never
_NEVER = float("inf")


class NodeSupply(Protocol):
    """Brings nodes back to a run, or new ones."""

    def poll(self, run: ElasticRun, now: float) -> None:
        """Called often; returns at once."""

    def close(self) -> None:
        """The run is about to end."""


class RankMonitor:
    """Waits for one job's ranks, within its time limits."""

    def __init__(self, job: JobDefinition, journal: LaunchJournal, clock: Clock, stop: StopSignals) -> None:
        self._job = job
        self._journal = journal
        self._clock = clock
        self._stop = stop

    def ends(
        self, run: AttemptRun, attempt: Attempt, recheck: StartupRecheck, nodes: Sequence[NodeSupply] = ()
    ) -> Sequence[RankEnd]:
        """How each rank ended; one that stays too long after its first peer has left, or is done, is killed; all, on an unfit node.

        Args:
            run: the ranks.
            attempt: that they belong to.
            recheck: queries the nodes, while no rank has trained.
            nodes: what brings nodes to a run whose lost ranks are replaced.
        """
        told, kill_at, give_up_at = False, _NEVER, _NEVER
        try:
            while not run.over():
                now = self._clock.monotonic()
                if self._stop.asked() and not told:
                    told, kill_at = True, min(kill_at, now + self._job.stop_seconds)
                    text = f"stopped by {self._stop.why}: requesting the ranks to save and leave"
                    run.terminate()  # first the signal: the journal may be on a disk that hangs
                    self._journal.write("stopping", text, attempt=attempt.number)
                ends = run.ended()
                self._record(run, attempt)
                _poll_supplies(run, nodes, now)
                if kill_at == _NEVER and any(end.code != ExitCode.DONE for end in ends):
                    kill_at = now + self._job.leave_seconds
                if give_up_at == _NEVER and ends and self._job.done_seconds:
                    give_up_at = now + self._job.done_seconds
                if now >= kill_at:
                    return self._kill(run, attempt, "that were still running after their peers left")
                if now >= give_up_at:
                    return self._kill(
                        run, attempt, f"that stayed {self._job.done_seconds:g} s after the first was done"
                    )
                if kill_at == _NEVER and not ends and recheck.finds_unfit(now):
                    return self._kill(run, attempt, "on nodes that became unfit")
                time.sleep(POLL_SECONDS)
            return run.ended()
        finally:
            for supply in nodes:
                supply.close()
            if not run.over():
                run.kill()
            run.clear()
            self._record(run, attempt)

    def _record(self, run: AttemptRun, attempt: Attempt) -> None:
        for event in run.take_events():
            self._journal.write(event.kind, event.text, attempt=attempt.number, **event.facts)

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until a stop."""
        end = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end and not self._stop.asked():
            time.sleep(POLL_SECONDS)

    def _kill(self, run: AttemptRun, attempt: Attempt, when: str) -> Sequence[RankEnd]:
        left = len(run.rank_nodes) - len(run.ended())
        run.kill()
        text = f"killing {format_count(left, 'rank')} {when}"
        self._journal.write("killing", text, attempt=attempt.number)
        give_up_at = self._clock.monotonic() + KILL_SECONDS
        while not run.over() and self._clock.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
        known = {end.rank: end for end in run.ended()}
        gone = [RankEnd(rank, node, None, killed=True) for rank, node in enumerate(run.rank_nodes)]
        return [known.get(end.rank, end) for end in gone]


def _poll_supplies(run: AttemptRun, nodes: Sequence[NodeSupply], now: float) -> None:
    """Only a run whose lost ranks are replaced can use nodes that come later."""
    if isinstance(run, ElasticRun):
        for supply in nodes:
            supply.poll(run, now)

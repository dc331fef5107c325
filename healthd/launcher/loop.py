"""The launcher's loop: gate, start, watch, judge, and again. The decisions are `plan`'s and `blame`'s."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from healthd.launcher import voice
from healthd.launcher.backend import Attempt, Backend, BackendError
from healthd.launcher.blame import blame_user, doubted, may_be_user_error
from healthd.launcher.coming_back import Return
from healthd.launcher.inquiry import Inquiry
from healthd.launcher.job import Job
from healthd.launcher.journal import Journal
from healthd.launcher.memory import history_of, requeues_in_vain
from healthd.launcher.pages import ends_from_pages, progress_of
from healthd.launcher.plan import (
    NO_PROGRESS,
    REQUEUE_EXIT,
    Fitness,
    History,
    Move,
    NodeVerdict,
    Outcome,
    Progress,
    RankEnd,
    Result,
    backoff,
    choose,
    combine,
    judge,
    next_move,
)
from healthd.launcher.proof import proven
from healthd.launcher.returning_nodes import ReturningNodes
from healthd.launcher.second_look import SecondLook
from healthd.launcher.stop import Stop
from healthd.launcher.watch import Watch
from vocabulary import decoders
from vocabulary.clock import Clock
from vocabulary.counts import counted

SETTLE_SECONDS = 3.0  # a daemon's time to see a fault that ended the ranks, before its node is asked again


class Launcher:
    """Runs one job to its end."""

    def __init__(self, job: Job, backend: Backend, journal: Journal, clock: Clock) -> None:
        self._job = job
        self._backend = backend
        self._journal = journal
        self._clock = clock
        self._stop = Stop(job.notice_file)
        self._inquiry = Inquiry(job, backend, journal, self._stop.asked)
        self._watch = Watch(job, journal, clock, self._stop)

    def run(self) -> int:
        """Attempt after attempt.

        Returns:
            The exit code: 0 done, 75 to be queued again, 128 + signal when told to stop, else the ranks' own.
        """
        decoders.build()
        with self._stop:
            code = self._attempts()
            voice.drain()  # while signals are noted: one that comes later ends this process at once
            return code

    def _attempts(self) -> int:
        history, name = history_of(self._journal.events()), self._backend.job()
        number = max(self._journal.last_attempt(), self._backend.attempts_before)
        while True:
            history, verdicts = self._proven(history)
            choice = choose(
                self._backend.nodes(),
                self._job.nodes,
                history.excluded,
                verdicts,
                self._job.choosing,
                least=self._job.least,
            )
            if self._stop.asked():
                return self._stopped()
            if choice.nodes is None:
                if not self._may_requeue(history, choice.why):
                    return 1
                unfit = {verdict.node for verdict in verdicts if verdict.fitness is Fitness.UNFIT}
                refused = (history.excluded | unfit).intersection(
                    self._backend.nodes()
                )  # a lost one is Slurm's to know
                return self._requeue(choice.why, refused, self._in_vain(history))
            number += 1
            attempt = self._job.attempt(number, name, choice.nodes, self._spares(choice.nodes, history, verdicts))
            result, progress = self._attempt(attempt, choice.why, verdicts, history)
            if self._stop.asked() and result.outcome is not Outcome.DONE:
                return self._stopped()
            history = history.after(result, progress)
            move, why = next_move(result, history, self._job.limits)
            if move is Move.STOP:
                text = f"{result.outcome.value}: {why}"
                self._journal.write("stopped", text, outcome=result.outcome.value, code=result.code)
                return result.code
            self._pause(backoff(history, self._job.limits))

    def _spares(self, nodes: Sequence[str], history: History, verdicts: Sequence[NodeVerdict]) -> tuple[str, ...]:
        """The nodes on which processes wait for a rank to be lost."""
        left = [node for node in self._backend.nodes() if node not in nodes]
        wanted = min(self._job.warm_spares, len(left))
        for count in range(wanted, 0, -1):
            choice = choose(left, count, history.excluded, verdicts, self._job.choosing)
            if choice.nodes is not None:
                return choice.nodes
        return ()

    def _returning(self, attempt: Attempt, history: History) -> ReturningNodes:
        def fit(nodes: Sequence[str]) -> Sequence[str]:
            at_hand = set(self._backend.nodes())
            _, verdicts = self._verdicts([node for node in nodes if node in at_hand])
            found = [choose([node], 1, history.excluded, verdicts, self._job.choosing).nodes for node in nodes]
            return [node for each in found for node in each or () if node in at_hand]

        used = {*attempt.nodes, *attempt.spares, *history.excluded}
        unused = [node for node in self._backend.nodes() if node not in used] if attempt.elastic else []
        return ReturningNodes(attempt, self._journal, fit, self._job.return_seconds, unused)

    def _proven(self, history: History) -> tuple[History, list[NodeVerdict]]:
        """What is known of the nodes; who failed the preflight is not asked again, who is unfit not before it is fit."""
        failed, verdicts = self._verdicts([node for node in self._backend.nodes() if node not in history.excluded])
        return history.without(failed), verdicts

    def _verdicts(self, nodes: Sequence[str]) -> tuple[set[str], list[NodeVerdict]]:
        """Who failed the preflight, and what is known of each."""
        gate = self._inquiry.gate(nodes)
        unfit = {verdict.node for verdict in gate if verdict.fitness is Fitness.UNFIT}
        preflight = self._inquiry.preflight([node for node in nodes if node not in unfit])
        failed = {verdict.node for verdict in preflight if verdict.fitness is Fitness.UNFIT}
        return failed, combine(gate, preflight, self._job.gate)

    def _attempt(
        self, attempt: Attempt, why: str, verdicts: Sequence[NodeVerdict], history: History
    ) -> tuple[Result, Progress]:
        world = len(attempt.nodes) * attempt.ranks_per_node
        spares = f", spares on {', '.join(attempt.spares)}" if attempt.spares else ""
        text = f"attempt {attempt.number}: {counted(world, 'rank')} on {', '.join(attempt.nodes)}{spares} ({why})"
        facts = {"attempt": attempt.number, "nodes": attempt.nodes, "ranks_per_node": attempt.ranks_per_node}
        facts |= {"spares": attempt.spares} if attempt.spares else {}
        self._journal.write("attempt_started", text, **facts)
        began, since, mark = self._clock.monotonic(), self._clock.wall(), _changed_at(self._job.progress_file)
        look = self._second_look(attempt, began, since, mark)
        ends: Sequence[RankEnd] = []
        progress, run = NO_PROGRESS, None
        try:
            run = self._backend.start(attempt)
            ends = self._watch.ends(run, attempt, look, self._returning(attempt, history))
            result = judge(ends)
        except BackendError as error:
            result = Result(Outcome.CRASHED, frozenset(), 1, str(error))
        seconds = self._clock.monotonic() - began
        if ends and result.outcome is not Outcome.DONE and (self._job.per_node or not self._stop.asked()):
            pages = self._inquiry.pages(attempt, since)
            progress = progress_of(pages, touched=_changed_at(self._job.progress_file) != mark)
            if self._job.per_node:
                ends = ends_from_pages(ends, pages)
            result = proven(judge(ends), ends, pages, asked=self._stop.asked())
            trained = history.step >= 0 or History().advanced(progress)  # this command has, so it is not plainly wrong
            early = may_be_user_error(result, ends, seconds, self._job.limits) and not trained
            if early and not self._stop.asked():
                result = self._blamed(result, ends, attempt, verdicts)
        if look.found:
            result = Result(Outcome.LOST, frozenset(), REQUEUE_EXIT, f"{_told(look.found)}; nothing was trained yet")
        result = result._replace(condemned=result.condemned.union(run.condemned if run else ()))
        self._journal.write(
            "attempt_ended",
            f"attempt {attempt.number}: {result.outcome.value} after {seconds:.1f} s: {result.why}",
            attempt=attempt.number,
            outcome=result.outcome.value,
            condemned=sorted(result.condemned),
            ranks=[end._asdict() for end in ends],
            step=progress.step,
            advanced=history.advanced(progress),
            seconds=round(seconds, 3),
        )
        return result, progress

    def _second_look(self, attempt: Attempt, began: float, since: float, mark: int) -> SecondLook:
        def progress() -> Progress:
            touched = _changed_at(self._job.progress_file) != mark
            return progress_of(self._inquiry.pages(attempt, since), touched=touched)

        def unfit() -> Sequence[NodeVerdict]:
            return self._inquiry.unfit_by_now(attempt.nodes)

        return SecondLook(unfit, progress, began=began, pause=self._job.look_again_seconds)

    def _blamed(
        self, result: Result, ends: Sequence[RankEnd], attempt: Attempt, before: Sequence[NodeVerdict]
    ) -> Result:
        """The user's error, unless a node's daemon, asked once more, now says less good of it than before."""
        if any(verdict.fitness is not Fitness.UNKNOWN for verdict in before):
            self._watch.pause(SETTLE_SECONDS)
            if doubted(before, self._inquiry.gate(attempt.nodes), attempt.nodes):
                return result
        return blame_user(result, ends)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._journal.write("waiting", f"the next attempt starts in {seconds:g} s", seconds=seconds)
            self._watch.pause(seconds)

    def _stopped(self) -> int:
        if self._stop.again:
            return self._requeue(self._stop.why)
        self._journal.write("stopped", f"stopped by {self._stop.why}", code=self._stop.code)
        return self._stop.code

    def _may_requeue(self, history: History, why: str) -> bool:
        """Not when this job only crashes, and each time on other nodes; where no journal tells of it, its queue's count does."""
        known = history.crashes + (0 if self._journal.keeps else self._backend.requeues_before)
        if history.crashes == 0 or known < self._job.limits.crashes:
            return True
        text = f"crashed without progress, queued again {self._backend.requeues_before} times already; {why}"
        self._journal.write("stopped", f"{Outcome.CRASHED.value}: {text}", outcome=Outcome.CRASHED.value, code=1)
        return False

    def _in_vain(self, history: History) -> int:
        """How often in a row nothing came of being queued; where no journal tells, the queue's own count is the most it can be."""
        if self._journal.keeps:
            return requeues_in_vain(self._journal.events())
        return 0 if history.restarts else self._backend.requeues_before

    def _requeue(self, why: str, refused: Collection[str] = (), in_vain: int = 0) -> int:
        def announce(plan: Return) -> None:
            text = f"no attempt possible here ({why}): asking Slurm to queue the job again{plan.text}"
            self._journal.write("requeuing", text, without=plan.without, wait_seconds=plan.wait_seconds)
            voice.drain()

        back = self._backend.requeue(refused, in_vain, announce)
        if back is not None:
            text = f"the job is queued again{back.text}"
            facts = {"without": back.without, "wait_seconds": back.wait_seconds}
            self._journal.write("requeued", text, code=REQUEUE_EXIT, **facts)
        else:
            self._journal.write(
                "stopped", f"no attempt possible ({why}); exit {REQUEUE_EXIT}: queue it again", code=REQUEUE_EXIT
            )
        return REQUEUE_EXIT


def _told(unfit: Sequence[NodeVerdict]) -> str:
    return ", ".join(f"{each.node} has become unfit ({each.reason})" for each in unfit)


def _changed_at(path: Path | None) -> int:
    """When a file was changed last, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns if path else 0
    except OSError:
        return 0

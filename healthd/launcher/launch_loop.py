"""The launcher's loop: gate, start, watch, judge, repeat. `decisions` makes the decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path

from healthd.launcher import stderr_writer
from healthd.launcher.decisions.attempt_history import count_failed_requeues, rebuild_history
from healthd.launcher.decisions.crash_attribution import blame_user, list_doubtful_nodes, may_be_user_error
from healthd.launcher.decisions.exit_verification import verify_ordered_leave
from healthd.launcher.decisions.relaunch_policy import (
    NO_PROGRESS,
    REQUEUE_EXIT,
    AttemptHistory,
    AttemptOutcome,
    AttemptProgress,
    AttemptResult,
    Fitness,
    LaunchAction,
    NodeVerdict,
    RankEnd,
    choose_nodes,
    combine_verdicts,
    compute_backoff,
    decide_next_action,
    judge_attempt,
)
from healthd.launcher.decisions.requeue_policy import RequeueDecision
from healthd.launcher.decisions.startup_recheck import StartupRecheck
from healthd.launcher.job_definition import JobDefinition
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.node_queries import NodeQueries
from healthd.launcher.process_groups.node_replacement import NodeReplacement
from healthd.launcher.process_groups.returning_nodes import ReturningNodes
from healthd.launcher.process_groups.swap_publisher import SwapPublisher, find_own_socket
from healthd.launcher.rank_monitor import NodeSupply, RankMonitor
from healthd.launcher.rank_pages import compute_progress, derive_rank_ends
from healthd.launcher.scheduler_backend import Attempt, Backend, BackendError
from healthd.launcher.stop_signals import StopSignals
from vocabulary.clock import Clock
from vocabulary.messages import message_decoders
from vocabulary.text.plurals import format_count

SETTLE_SECONDS = 3.0  # time for a daemon to detect the fault that ended the ranks, before its node is queried again


class Launcher:
    """Runs one job to its end."""

    def __init__(self, job: JobDefinition, backend: Backend, journal: LaunchJournal, clock: Clock) -> None:
        self._job = job
        self._backend = backend
        self._journal = journal
        self._clock = clock
        self._stop = StopSignals(job.notice_file)
        self._inquiry = NodeQueries(job, backend, journal, self._stop.asked)
        self._watch = RankMonitor(job, journal, clock, self._stop)

    def run(self) -> int:
        """Run attempt after attempt.

        Returns:
            The exit code: 0 done, 75 to be requeued, 128 + signal when stopped, else the ranks' own.
        """
        message_decoders.build_decoders()
        with self._stop, self._swaps(), self._backend.guard_host(self._journal.path):
            code = self._attempts()
            stderr_writer.drain_stderr()  # while signals are recorded: a later one ends this process at once
            return code

    def _swaps(self) -> contextlib.AbstractContextManager[None]:
        if not self._job.swap:
            return contextlib.nullcontext()
        local = self._backend.name == "local"
        path = find_own_socket(self._job.socket_template, self._backend.nodes() if local else (), local=local)
        return SwapPublisher(self._journal, self._backend.job(), path)

    def _attempts(self) -> int:
        history, name = rebuild_history(self._journal.events()), self._backend.job()
        number = max(self._journal.last_attempt(), self._backend.attempts_before)
        while True:
            history, verdicts = self._proven(history)
            choice = choose_nodes(
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
                refused = (history.excluded | unfit).intersection(self._backend.nodes())  # Slurm finds lost nodes
                return self._requeue(choice.why, refused, self._in_vain(history))
            number += 1
            attempt = self._job.attempt(number, name, choice.nodes, self._spares(choice.nodes, history, verdicts))
            result, progress = self._attempt(attempt, choice.why, verdicts, history)
            if self._stop.asked() and result.outcome is not AttemptOutcome.DONE:
                return self._stopped()
            history = history.after(result, progress)
            move, why = decide_next_action(result, history, self._job.limits)
            if move is LaunchAction.STOP:
                text = f"{result.outcome.value}: {why}"
                self._journal.write("stopped", text, outcome=result.outcome.value, code=result.code)
                return result.code
            self._pause(compute_backoff(history, self._job.limits))

    def _spares(
        self, nodes: Sequence[str], history: AttemptHistory, verdicts: Sequence[NodeVerdict]
    ) -> tuple[str, ...]:
        """Return the nodes on which spares wait."""
        left = [node for node in self._backend.nodes() if node not in nodes]
        wanted = min(self._job.warm_spares, len(left))
        for count in range(wanted, 0, -1):
            choice = choose_nodes(left, count, history.excluded, verdicts, self._job.choosing)
            if choice.nodes is not None:
                return choice.nodes
        return ()

    def _returning(self, attempt: Attempt, history: AttemptHistory) -> ReturningNodes:
        def fit(nodes: Sequence[str]) -> Sequence[str]:
            at_hand = set(self._backend.nodes())
            _, verdicts = self._verdicts([node for node in nodes if node in at_hand], repeated=True)
            found = [choose_nodes([node], 1, history.excluded, verdicts, self._job.choosing).nodes for node in nodes]
            return [node for each in found for node in each or () if node in at_hand]

        used = {*attempt.nodes, *attempt.spares, *history.excluded}
        unused = [node for node in self._backend.nodes() if node not in used] if attempt.elastic else []
        return ReturningNodes(attempt, self._journal, fit, self._job.return_seconds, unused)

    def _node_supplies(self, attempt: Attempt, history: AttemptHistory) -> list[NodeSupply]:
        """What brings nodes to an attempt whose lost ranks are replaced."""
        returning = self._returning(attempt, history)
        if not self._job.replace_nodes or not self._backend.resizable:
            return [returning]
        return [returning, NodeReplacement(attempt, self._journal, self._backend, returning.add, self._stop.asked)]

    def _proven(self, history: AttemptHistory) -> tuple[AttemptHistory, list[NodeVerdict]]:
        """What is known of the nodes; who failed the preflight is not asked again, who is unfit not before it is fit."""
        failed, verdicts = self._verdicts([node for node in self._backend.nodes() if node not in history.excluded])
        return history.without(failed), verdicts

    def _verdicts(self, nodes: Sequence[str], *, repeated: bool = False) -> tuple[set[str], list[NodeVerdict]]:
        """Who failed the preflight, and what is known of each. `repeated`: of lost nodes, which may be off."""
        gate = self._inquiry.gate(nodes, repeated=repeated)
        gate = self._inquiry.mark_silent_nodes_unfit(gate) if repeated else gate
        unfit = {verdict.node for verdict in gate if verdict.fitness is Fitness.UNFIT}
        preflight = self._inquiry.preflight([node for node in nodes if node not in unfit])
        failed = {verdict.node for verdict in preflight if verdict.fitness is Fitness.UNFIT}
        return failed, combine_verdicts(gate, preflight, self._job.gate)

    def _attempt(
        self, attempt: Attempt, why: str, verdicts: Sequence[NodeVerdict], history: AttemptHistory
    ) -> tuple[AttemptResult, AttemptProgress]:
        world = len(attempt.nodes) * attempt.ranks_per_node
        spares = f", spares on {', '.join(attempt.spares)}" if attempt.spares else ""
        text = f"attempt {attempt.number}: {format_count(world, 'rank')} on {', '.join(attempt.nodes)}{spares} ({why})"
        facts = {"attempt": attempt.number, "nodes": attempt.nodes, "ranks_per_node": attempt.ranks_per_node}
        facts |= {"spares": attempt.spares} if attempt.spares else {}
        self._journal.write("attempt_started", text, **facts)
        began, since, mark = (
            self._clock.monotonic(),
            self._clock.wall(),
            _read_modification_time(self._job.progress_file),
        )
        recheck = self._make_recheck(attempt, began, since, mark)
        ends: Sequence[RankEnd] = []
        progress, run = NO_PROGRESS, None
        try:
            run = self._backend.start(attempt)
            ends = self._watch.ends(run, attempt, recheck, self._node_supplies(attempt, history))
            result = judge_attempt(ends)
        except BackendError as error:
            result = AttemptResult(AttemptOutcome.CRASHED, frozenset(), 1, str(error))
        seconds = self._clock.monotonic() - began
        if ends and result.outcome is not AttemptOutcome.DONE and (self._job.per_node or not self._stop.asked()):
            pages = self._inquiry.pages(attempt, since)
            progress = compute_progress(pages, touched=_read_modification_time(self._job.progress_file) != mark)
            if self._job.per_node:
                ends = derive_rank_ends(ends, pages)
            result = verify_ordered_leave(judge_attempt(ends), ends, pages, asked=self._stop.asked())
            trained = history.step >= 0 or AttemptHistory().advanced(
                progress
            )  # the command made progress, so it is not plainly wrong
            early = may_be_user_error(result, ends, seconds, self._job.limits) and not trained
            if early and not self._stop.asked():
                result = self._blamed(result, ends, attempt, verdicts)
        if recheck.found:
            result = AttemptResult(
                AttemptOutcome.LOST,
                frozenset(),
                REQUEUE_EXIT,
                f"{_describe_unfit_nodes(recheck.found)}; no step has been trained yet",
            )
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

    def _make_recheck(self, attempt: Attempt, began: float, since: float, mark: int) -> StartupRecheck:
        def progress() -> AttemptProgress:
            touched = _read_modification_time(self._job.progress_file) != mark
            return compute_progress(self._inquiry.pages(attempt, since), touched=touched)

        def unfit() -> Sequence[NodeVerdict]:
            return self._inquiry.list_unfit_nodes(attempt.nodes)

        return StartupRecheck(unfit, progress, began=began, pause=self._job.look_again_seconds)

    def _blamed(
        self, result: AttemptResult, ends: Sequence[RankEnd], attempt: Attempt, before: Sequence[NodeVerdict]
    ) -> AttemptResult:
        """Return a user error, unless a node's daemon, queried again, now reports worse health than before."""
        if any(verdict.fitness is not Fitness.UNKNOWN for verdict in before):
            self._watch.pause(SETTLE_SECONDS)
            if list_doubtful_nodes(before, self._inquiry.gate(attempt.nodes), attempt.nodes):
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

    def _may_requeue(self, history: AttemptHistory, why: str) -> bool:
        """Return whether to requeue: not if the job crashes on ever new nodes; without a journal the queue's count decides."""
        known = history.crashes + (0 if self._journal.keeps else self._backend.requeues_before)
        if history.crashes == 0 or known < self._job.limits.crashes:
            return True
        text = f"crashed without progress, requeued {self._backend.requeues_before} times; {why}"
        self._journal.write(
            "stopped", f"{AttemptOutcome.CRASHED.value}: {text}", outcome=AttemptOutcome.CRASHED.value, code=1
        )
        return False

    def _in_vain(self, history: AttemptHistory) -> int:
        """Return the consecutive requeues without an attempt; without a journal at most the queue's count."""
        if self._journal.keeps:
            return count_failed_requeues(self._journal.events())
        return 0 if history.restarts else self._backend.requeues_before

    def _requeue(self, why: str, refused: Collection[str] = (), in_vain: int = 0) -> int:
        def announce(plan: RequeueDecision) -> None:
            text = f"no attempt possible here ({why}): requesting Slurm to requeue the job{plan.text}"
            self._journal.write("requeuing", text, without=plan.without, wait_seconds=plan.wait_seconds)
            stderr_writer.drain_stderr()

        back = self._backend.requeue(refused, in_vain, announce)
        if back is not None:
            text = f"the job is queued again{back.text}"
            facts = {"without": back.without, "wait_seconds": back.wait_seconds}
            self._journal.write("requeued", text, code=REQUEUE_EXIT, **facts)
        else:
            self._journal.write(
                "stopped", f"no attempt possible ({why}); exit {REQUEUE_EXIT}: requeue it", code=REQUEUE_EXIT
            )
        return REQUEUE_EXIT


def _describe_unfit_nodes(unfit: Sequence[NodeVerdict]) -> str:
    return ", ".join(f"{each.node} has become unfit ({each.reason})" for each in unfit)


def _read_modification_time(path: Path | None) -> int:
    """Return a file's modification time in nanoseconds; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns if path else 0
    except OSError:
        return 0

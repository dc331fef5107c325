"""Passes what nodes report to the judges of jobs, in its own thread, and submits their news to the engine."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetWritten
from itertools import islice
from typing import NamedTuple

from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.engine.duty_cycle import DutyCycle
from remediator.fleet.report_registry import ReportEntry, ReportRegistry
from remediator.model.pipeline_inputs import VerdictsReached
from remediator.monitoring import gpu_count_comparison
from remediator.monitoring.detector_findings import select_finding_changes as what_is_news
from remediator.monitoring.job_judge import (
    ENDED,
    JOBS,
    FaultCounter,
    FindingChanges,
    JobJudge,
    JudgeInput,
    JudgeOutput,
    NodeUpdate,
)
from remediator.monitoring.judge_process import JudgeGoneError, JudgeProcess
from remediator.monitoring.lemon_monitor import LemonMonitor
from remediator.store.database import StoreError
from vocabulary.clock import Clock
from vocabulary.finding import Finding

log = logging.getLogger(__name__)
LOOK_S = 2.0
WRITTEN_WITHIN_S = 30.0
HEARD_ALL_S = 600.0  # into a term: a job that no node has reported by then ended under another leader
GPU_COUNTS_S = 60.0  # between two comparisons of GPU counts
GPUS, PAST = "gpu_counts", "past"
PARTS = (JOBS, ENDED, GPUS, PAST)
DRIVER_CHECK = "nvml"  # healthd's check for a driver that does not answer
OWN_PROCESS_NODES = 500  # with so many nodes that have ranks, judging moves out of the controller by itself
UPDATES_TOGETHER = 256  # encoded in one piece: that must not delay requests


class _ReportMarker(NamedTuple):
    """Which report and heartbeat of a node were last read.

    Not the report itself: a fleet's are large.
    """

    agent: str
    base: int
    seq: int


class JobWatcher:
    """Runs a pass every few seconds while this process leads."""

    def __init__(
        self,
        engine: DecisionEngine,
        registry: ReportRegistry,
        clock: Clock,
        past: LemonMonitor,
        processes: int | None = None,
    ) -> None:
        """Args: `past` judges the history of all nodes when due; the others are those of `LeaderTerm`.

        `processes` judge jobs; 0: this one does; None: this one, and for a large fleet another one.
        """
        self._engine = engine
        self._report_registry = registry
        self._clock = clock
        self._past = past
        self._pace = DutyCycle()  # a fleet's reports take a quarter of a second, during which requests must be answered
        self.judge = JobJudge(pace=self._pace)  # while this process judges
        self._processes: list[JudgeProcess] = []
        self._wanted = processes
        self._seen: dict[str, _ReportMarker] = {}
        self._changes = FindingChanges()
        self._counter = FaultCounter(PARTS)
        self.faults = self._counter.faults  # internal errors in this term, by part
        self._begun_at = clock.wall()
        self._gpu_counts_due = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and the processes."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=WRITTEN_WITHIN_S)
        self._end_processes()

    def poll_once(self) -> None:
        """Run one pass. News is durable when this returns, or is submitted again in the next pass.

        A failing part stops no other.
        """
        now, snapshot = self._clock.wall(), self._engine.snapshot
        self._pace.begin()
        faults_before = self.faults.copy()
        judged = self._judge(snapshot, now)
        self.faults.update(judged.faults)
        news: list[Sequence[Finding]] = [*judged.news, self._counter.run(GPUS, lambda: self._gpu_counts(snapshot, now))]
        self._tell(news, now)
        if self._tell([self._counter.run(PAST, lambda: self._past(snapshot, now))], now):
            self._past.written(now)
        self._counter.failing = {part for part in PARTS if self.faults[part] > faults_before[part]}

    def _judge(self, snapshot: StateSnapshot, now: float) -> JudgeOutput:
        """Pass on what is new, in pieces, and return what all judges conclude.

        A judge that has gone is started again in the next pass, with all that is known now.
        """
        try:
            self._start_processes(snapshot)
            changed, gone = self._changes.since_last(snapshot.findings)
            steps = [each.step for each in self._processes] or [self.judge.step]
            updates, faults = self._collect_updates(snapshot), Counter[str]()
            while (piece := tuple(islice(updates, UPDATES_TOGETHER))) and not self._stopping.is_set():
                for step in steps:
                    faults.update(step(JudgeInput(now, updates=piece, more=True)).faults)
            last = JudgeInput(now, now - self._begun_at > HEARD_ALL_S, (), changed, gone)
            found = [step(last) for step in steps]
        except (JudgeGoneError, OSError) as error:
            log.error("%s; it is started again, and slow nodes and hangs are found some minutes later", error)
            self._end_processes()
            return JudgeOutput(faults={JOBS: 1})
        for each in found:
            faults.update(each.faults)
        return JudgeOutput(tuple([findings for each in found for findings in each.news]), dict(faults))

    def _start_processes(self, snapshot: StateSnapshot) -> None:
        wanted = self._wanted
        if wanted is None:  # before any is judged here: a large fleet would leave its memory behind
            found = (self._report_registry.get(name) for name in snapshot.nodes)
            wanted = int(bool(self._processes) or _has_many_with_ranks(found))
        if wanted == len(self._processes):
            return
        self._forget_judged()
        self._processes = [JudgeProcess(shard, wanted) for shard in range(wanted)]
        log.info("jobs are judged in %s", ", ".join(f"process {each.pid}" for each in self._processes))

    def _end_processes(self) -> None:
        for each in self._processes:
            each.close()
        self._processes = []
        self._forget_judged()

    def _forget_judged(self) -> None:
        """The next judges know nothing: everything is passed on again."""
        self.judge = JobJudge(pace=self._pace)
        self._seen, self._changes = {}, FindingChanges()

    def _collect_updates(self, snapshot: StateSnapshot) -> Iterator[NodeUpdate]:
        """Yield what nodes have reported since the last pass."""
        for name in snapshot.nodes:
            entry, before = self._report_registry.get(name), self._seen.get(name)
            self._pace.step()
            if entry is None or (before is not None and (before.agent, before.seq) == (entry.agent, entry.seq)):
                continue
            yield _node_update(entry, before)
            self._seen[name] = _ReportMarker(entry.agent, entry.base, entry.seq)

    def _has_reported(self, node: str) -> bool:
        entry = self._report_registry.get(node)
        return entry is not None and self._clock.wall() - entry.seen_at <= entry.ttl_s

    def _gpu_counts(self, snapshot: StateSnapshot, now: float) -> tuple[Finding, ...]:
        """Compare GPU counts.

        A node takes part while it reports; one whose driver does not answer for all GPUs does not.
        """
        if now < self._gpu_counts_due:
            return ()
        self._gpu_counts_due = now + GPU_COUNTS_S
        unsure = {each.node for each in snapshot.findings.values() if each.active and each.check == DRIVER_CHECK}
        counted: list[gpu_count_comparison.NodeGpus] = []
        for name, record in self._pace.over(snapshot.nodes.items()):
            entry = self._report_registry.get(name)
            if entry is None or name in unsure or len(entry.products) != 1 or not self._has_reported(name):
                continue
            counted.append(
                gpu_count_comparison.NodeGpus(name, entry.products[0], record.places.partitions, len(entry.gpus))
            )
        compared = gpu_count_comparison.compare_gpu_counts(counted, now)
        sure = {each.node for each in counted} if now - self._begun_at > HEARD_ALL_S else compared.judged
        known = [finding for finding in snapshot.findings.values() if finding.origin == gpu_count_comparison.ORIGIN]
        return what_is_news(
            known, compared.findings, now, lambda each: gpu_count_comparison.NO_LONGER if each.node in sure else "", now
        )

    def _tell(self, news: Iterable[Sequence[Finding]], now: float) -> bool:
        """Submit the conclusions and return whether all are durable.

        They are separate inputs: where the database refuses one job's, the others' are written.
        """
        inputs = [VerdictsReached(at=now, findings=tuple(findings)) for findings in news if findings]
        told: list[Future[None]] = []
        try:
            told.extend(map(self._engine.submit_durably, inputs))
            for written in told:
                written.result(WRITTEN_WITHIN_S)
        except (queue.Full, NotYetWritten, StoreError) as error:
            log.warning("conclusions are submitted again later: %s", str(error) or type(error).__name__)
            return False
        return True

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.poll_once()
            except Exception:
                log.exception("the analysis across nodes failed")


def _has_many_with_ranks(entries: Iterable[ReportEntry | None]) -> bool:
    with_ranks = (entry for entry in entries if entry is not None and entry.reported_ranks)
    return sum(1 for _ in islice(with_ranks, OWN_PROCESS_NODES)) >= OWN_PROCESS_NODES


def _node_update(entry: ReportEntry, before: _ReportMarker | None) -> NodeUpdate:
    """Return what is new in a node's entry: its whole report, unless that was read, and the heartbeats since."""
    known = before is not None and (before.agent, before.base) == (entry.agent, entry.base)
    since = before.seq if before is not None and known else -1
    return NodeUpdate(
        entry.node,
        entry.seen_at,
        entry.sent_at,
        entry.ttl_s,
        None if known else entry.reported_ranks,
        () if known else entry.packed,
        tuple([each for each in entry.heartbeats if each.seq > since]),
        None if known else entry.progress,
    )

"""Judges the reports of all nodes in its own thread and submits what is new to the engine."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetWritten
from functools import partial
from typing import NamedTuple

from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.engine.duty_cycle import DutyCycle
from remediator.fleet.report_registry import ReportEntry, ReportRegistry
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import VerdictsReached
from remediator.monitoring import gpu_count_comparison, hang_findings, sdc_findings, straggler_findings
from remediator.monitoring.detector_findings import detector_origin
from remediator.monitoring.detector_findings import select_finding_changes as what_is_news
from remediator.monitoring.ended_jobs import findings_of_ended_jobs
from remediator.monitoring.job_monitor import JobMonitor, KnownFindings
from remediator.monitoring.lemon_monitor import LemonMonitor
from remediator.monitoring.step_windows import NodeRankReport, is_possible_rank
from remediator.store.database import StoreError
from vocabulary.clock import Clock
from vocabulary.finding import Finding
from vocabulary.messages.wire import RankStatus

log = logging.getLogger(__name__)
LOOK_S = 2.0
WRITTEN_WITHIN_S = 30.0
HEARD_ALL_S = 600.0  # into a term: a job that no node has reported by then ended under another leader
JOBS_PER_NODE = 16
GPU_COUNTS_S = 60.0  # between two comparisons of GPU counts
JOBS, ENDED, GPUS, PAST = PARTS = ("jobs", "ended", "gpu_counts", "past")
DRIVER_CHECK = "nvml"  # healthd's check for a driver that does not answer
SOURCES = (straggler_findings.SOURCE, hang_findings.SOURCE, sdc_findings.SOURCE)


class _ReportMarker(NamedTuple):
    """Which report was last read of a node (agent and number), and its jobs.

    Not the report itself: a fleet's are large.
    """

    report: tuple[str, int]
    jobs: tuple[JobRef, ...]


class JobWatcher:
    """Runs a pass every few seconds while this process leads."""

    def __init__(self, engine: DecisionEngine, registry: ReportRegistry, clock: Clock, past: LemonMonitor) -> None:
        """Args: `past` judges the history of all nodes when due; the others are those of `LeaderTerm`."""
        self._engine = engine
        self._report_registry = registry
        self._clock = clock
        self._past = past
        self._jobs: dict[JobRef, JobMonitor] = {}
        self._seen: dict[str, _ReportMarker] = {}
        self.faults: Counter[str] = Counter(dict.fromkeys(PARTS, 0))  # internal errors in this term, by part
        self._failing: set[str] = set()  # parts that failed in the last pass
        self._known: tuple[StateSnapshot, KnownFindings] | None = None
        self._begun_at = clock.wall()
        self._gpu_counts_due = 0.0
        self._pace = DutyCycle()  # a fleet's reports take a quarter of a second, during which requests must be answered
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=WRITTEN_WITHIN_S)

    def poll_once(self) -> None:
        """Run one pass. News is durable when this returns, or is submitted again in the next pass.

        A failing part stops no other.
        """
        now, snapshot = self._clock.wall(), self._engine.snapshot
        self._pace.begin()
        if self._known is None or self._known[0] is not snapshot:
            self._known = snapshot, KnownFindings(snapshot.findings.values())
        known = self._known[1]
        faults_before = self.faults.copy()
        self._hear(self._listen(snapshot))
        news: list[Sequence[Finding]] = []
        for job in self._pace.over(self._jobs.values()):
            if self._stopping.is_set():
                return
            news += [self._part(JOBS, judgement) for judgement in job.judgements(known, self._has_reported, now)]
        over = [ref for ref, job in self._pace.over(self._jobs.items()) if not job.lives(now)]
        for ref in over:
            del self._jobs[ref]
        news.append(self._part(ENDED, lambda: self._ended(known, over, now)))
        news.append(self._part(GPUS, lambda: self._gpu_counts(snapshot, now)))
        self._tell(news, now)
        if self._tell([self._part(PAST, lambda: self._past(snapshot, now))], now):
            self._past.written(now)
        self._failing = {part for part in PARTS if self.faults[part] > faults_before[part]}

    def _part(self, name: str, part: Callable[[], Sequence[Finding] | None]) -> Sequence[Finding]:
        try:
            return part() or ()
        except Exception:
            if name not in self._failing:
                log.exception("the analysis of %s across nodes failed; please report it", name)
                self._failing.add(name)
            self.faults[name] += 1
            return ()

    def _listen(self, snapshot: StateSnapshot) -> dict[JobRef, list[ReportEntry]]:
        """Return, by job, the nodes that have reported since the last pass."""
        words: dict[JobRef, list[ReportEntry]] = {}
        for name in snapshot.nodes:
            entry, before = self._report_registry.get(name), self._seen.get(name)
            if entry is None or (before is not None and before.report == (entry.agent, entry.seq)):
                continue
            told = _bounded_job_refs(entry.reported_ranks)
            self._seen[name] = _ReportMarker((entry.agent, entry.seq), told)
            for ref in told:
                words.setdefault(ref, []).append(entry)
            for ref in before.jobs if before is not None else ():
                if ref not in told and ref in self._jobs:
                    self._jobs[ref].words.pop(name, None)
            self._pace.step()
        return words

    def _hear(self, words: Mapping[JobRef, Collection[ReportEntry]]) -> None:
        """Pass each job its reports; a new job with living ranks gets a monitor of its own.

        Windows are decoded one job at a time: a whole fleet's would survive several runs of the cycle collector.
        """
        for ref, told in words.items():
            job = self._jobs.get(ref) or JobMonitor(ref)
            heard: list[NodeRankReport] = []
            for entry in self._pace.over(told):
                if job.wants(entry.node, entry.seen_at):
                    heard.append(_node_rank_report(entry, entry.ranks_of(ref)))
                else:
                    job.note(_node_rank_report(entry, entry.bare_ranks_of(ref)))
            if ref in self._jobs or any(rank.alive for word in heard for rank in word.ranks):
                self._jobs[ref] = job
                self._part(JOBS, partial(job.take, heard))

    def _has_reported(self, node: str) -> bool:
        entry = self._report_registry.get(node)
        return entry is not None and self._clock.wall() - entry.seen_at <= entry.ttl_s

    def _ended(self, known: KnownFindings, over: list[JobRef], now: float) -> tuple[Finding, ...]:
        living = {detector_origin(source, ref) for ref in self._jobs for source in SOURCES}
        gone = {detector_origin(source, ref) for ref in over for source in SOURCES}
        sure = now - self._begun_at > HEARD_ALL_S
        origins = [origin for origin in known.of_origin if origin not in living and (sure or origin in gone)]
        return findings_of_ended_jobs((finding for origin in origins for finding in known.of_origin[origin]), now)

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


def _bounded_job_refs(ranks: Sequence[RankStatus]) -> tuple[JobRef, ...]:
    """Limit the attempts of jobs to what one node may have ranks of; those with living ranks go first."""
    found: dict[tuple[str, int], None] = {}
    for rank in sorted(filter(is_possible_rank, ranks), key=lambda rank: not rank.alive):
        if len(found) < JOBS_PER_NODE:
            found[rank.job, rank.attempt] = None
    return tuple([JobRef(*key) for key in found])


def _node_rank_report(entry: ReportEntry, ranks: Iterable[RankStatus]) -> NodeRankReport:
    return NodeRankReport(entry.node, list(filter(is_possible_rank, ranks)), entry.seen_at, entry.sent_at)

"""Judges jobs from what their nodes report: stragglers, hangs, corruption. Input in, findings out, the same in any process."""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from remediator.engine.duty_cycle import DutyCycle
from remediator.fleet.report_registry import attach_windows
from remediator.model.detector_origin import is_concluded
from remediator.model.journal_records import JobRef
from remediator.monitoring import hang_findings, sdc_findings, straggler_findings
from remediator.monitoring.detector_findings import detector_origin
from remediator.monitoring.ended_jobs import findings_of_ended_jobs
from remediator.monitoring.job_monitor import JobMonitor, KnownFindings, NodeHeartbeats
from remediator.monitoring.step_windows import NodeRankReport, is_possible_rank
from vocabulary.finding import Finding
from vocabulary.messages.heartbeat import Heartbeat, apply_heartbeat, strip_rank_progress
from vocabulary.messages.wire import RankStatus

log = logging.getLogger(__name__)
JOBS_PER_NODE = 16
JOBS, ENDED = "jobs", "ended"
T = TypeVar("T")

SOURCES = (straggler_findings.SOURCE, hang_findings.SOURCE, sdc_findings.SOURCE)


class NodeUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node has reported since the last input: a whole report (`ranks` is set), heartbeats, or both.

    Times are UTC seconds; `packed` holds the step windows of each of `ranks`, `progress` their progress unless they have
    it themselves.
    """

    node: str
    seen_at: float
    sent_at: float
    ttl_s: float
    ranks: tuple[RankStatus, ...] | None
    packed: tuple[bytes, ...]
    heartbeats: tuple[Heartbeat, ...]
    progress: Heartbeat | None = None


class JudgeInput(msgspec.Struct, frozen=True, array_like=True):
    """What has changed since the last input. Jobs are judged unless `more` follows.

    `findings` have changed or are new, `gone` are the ids of those that no longer exist. `heard_all`: every node has had
    time to report to this leader, so a job that none has reported has ended.
    """

    now: float
    heard_all: bool = False
    updates: tuple[NodeUpdate, ...] = ()
    findings: tuple[Finding, ...] = ()
    gone: tuple[str, ...] = ()
    more: bool = False


class JudgeOutput(msgspec.Struct, frozen=True, array_like=True):
    """The news of each judgement, and how many judgements ended in an internal error, by part."""

    news: tuple[tuple[Finding, ...], ...] = ()
    faults: dict[str, int] = {}


class _NodeReport(NamedTuple):
    """A node's last whole report, its jobs, and when it last reported."""

    ranks: tuple[RankStatus, ...]
    jobs: tuple[JobRef, ...]
    seen_at: float
    ttl_s: float
    stripped: bool = False  # its ranks are without what heartbeats bring


def shard_of(job: str, shards: int) -> int:
    """Return which of so many judges has this job."""
    return zlib.crc32(job.encode(errors="surrogatepass")) % shards


def bounded_job_refs(ranks: Sequence[RankStatus]) -> tuple[JobRef, ...]:
    """Limit the attempts of jobs to what one node may have ranks of; those with living ranks go first."""
    found: dict[tuple[str, int], None] = {}
    for rank in sorted(filter(is_possible_rank, ranks), key=lambda rank: not rank.alive):
        if len(found) < JOBS_PER_NODE:
            found[rank.job, rank.attempt] = None
    return tuple([JobRef(*key) for key in found])


class FaultCounter:
    """Counts internal errors by part, so that a failing part stops no other; each is logged when it begins."""

    def __init__(self, parts: Iterable[str] = ()) -> None:
        self.faults: Counter[str] = Counter(dict.fromkeys(parts, 0))
        self.failing: set[str] = set()  # parts that failed in the last pass

    def run(self, name: str, part: Callable[[], Sequence[Finding] | None]) -> Sequence[Finding]:
        """Return what the part finds; nothing if it fails."""
        try:
            return part() or ()
        except Exception:
            if name not in self.failing:
                log.exception("the analysis of %s across nodes failed; please report it", name)
                self.failing.add(name)
            self.faults[name] += 1
            return ()


class JobJudge:
    """The jobs of one shard. A failing judgement stops no other."""

    def __init__(self, shard: int = 0, shards: int = 1, pace: DutyCycle | None = None) -> None:
        """Args: `pace`: rests between pieces of work, where other threads must run."""
        self.jobs: dict[JobRef, JobMonitor] = {}
        self._shard, self._shards = shard, shards
        self._over = _without_rests if pace is None else pace.over
        self._nodes: dict[str, _NodeReport] = {}
        self._findings: dict[str, Finding] = {}
        self._known: KnownFindings | None = None
        self._counter = FaultCounter()
        self._now = 0.0

    def step(self, told: JudgeInput) -> JudgeOutput:
        """Take in what is new, and judge every job."""
        self._now = told.now
        self._counter.faults.clear()
        self._note_findings(told)
        self._hear(told.updates)
        if told.more:
            return JudgeOutput(faults=dict(self._counter.faults))
        known = self._known = self._known or KnownFindings(self._findings.values())
        news: list[Sequence[Finding]] = []
        for job in self._over(self.jobs.values()):
            self._counter.run(JOBS, partial(job.read_waiting, told.now))
            news += [self._counter.run(JOBS, judge) for judge in job.judgements(known, self._has_reported, told.now)]
        over = [ref for ref, job in self._over(self.jobs.items()) if not job.lives(told.now)]
        for ref in over:
            del self.jobs[ref]
        news.append(self._counter.run(ENDED, lambda: self._ended(known, over, heard_all=told.heard_all)))
        self._counter.failing &= self._counter.faults.keys()
        return JudgeOutput(tuple([tuple(each) for each in news if each]), dict(self._counter.faults))

    def _note_findings(self, told: JudgeInput) -> None:
        if told.findings or told.gone:
            self._findings |= {each.id: each for each in told.findings if self._concerns(each)}
            for gone in told.gone:
                self._findings.pop(gone, None)
            self._known = None

    def _concerns(self, finding: Finding) -> bool:
        job = finding.evidence.get("job")
        if self._shards == 1 or not is_concluded(finding) or not isinstance(job, str):
            return True
        return shard_of(job, self._shards) == self._shard

    def _hear(self, updates: Iterable[NodeUpdate]) -> None:
        """Pass each job what its nodes have reported; a new job with living ranks gets a monitor of its own."""
        whole: dict[JobRef, list[NodeUpdate]] = {}
        beating: dict[JobRef, list[NodeHeartbeats]] = {}
        for update in self._over(updates):
            if update.ranks is not None:
                for ref in self._note_report(update, update.ranks):
                    whole.setdefault(ref, []).append(update)
            known = self._note_heartbeats(update)
            if known is not None and update.heartbeats:
                beat = NodeHeartbeats(update.node, update.seen_at, known.ranks, update.heartbeats)
                for ref in known.jobs:
                    beating.setdefault(ref, []).append(beat)
        for ref, told in whole.items():
            self._hear_job(ref, told)
        for ref, beats in self._over(beating.items()):
            job = self.jobs.get(ref)
            if job is not None:
                self._counter.run(JOBS, partial(job.beat, beats))

    def _note_report(self, update: NodeUpdate, ranks: tuple[RankStatus, ...]) -> tuple[JobRef, ...]:
        """Note a whole report; return its jobs in this shard."""
        refs = [ref for ref in bounded_job_refs(ranks) if shard_of(ref.job, self._shards) == self._shard]
        before = self._nodes.get(update.node)
        for ref in before.jobs if before is not None else ():
            if ref not in refs and ref in self.jobs:
                self.jobs[ref].words.pop(update.node, None)
        self._nodes[update.node] = _NodeReport(
            ranks, tuple(refs), update.seen_at, update.ttl_s, update.progress is not None
        )
        return tuple(refs)

    def _note_heartbeats(self, update: NodeUpdate) -> _NodeReport | None:
        known = self._nodes.get(update.node)
        if known is None:
            return None
        known = known._replace(seen_at=update.seen_at, ttl_s=update.ttl_s)
        if update.heartbeats and not known.stripped:  # from now on heartbeats bring the rest
            known = known._replace(ranks=strip_rank_progress(known.ranks), stripped=True)
        self._nodes[update.node] = known
        return known

    def _hear_job(self, ref: JobRef, told: Collection[NodeUpdate]) -> None:
        """Windows are unpacked one job at a time: a whole fleet's would survive several runs of the cycle collector."""
        job = self.jobs.get(ref) or JobMonitor(ref)
        heard: list[NodeRankReport] = []
        for update in self._over(told):
            ranks: Sequence[RankStatus] = update.ranks or ()
            if update.progress is not None:
                ranks = apply_heartbeat(ranks, update.progress)
            if job.wants(update.node, update.seen_at):
                heard.append(_rank_report(update, attach_windows(ranks, update.packed), ref))
            else:
                job.note(_rank_report(update, ranks, ref))
        if ref in self.jobs or any(rank.alive for word in heard for rank in word.ranks):
            self.jobs[ref] = job
            self._counter.run(JOBS, partial(job.take, heard))

    def _has_reported(self, node: str) -> bool:
        known = self._nodes.get(node)
        return known is not None and self._now - known.seen_at <= known.ttl_s

    def _ended(self, known: KnownFindings, over: Collection[JobRef], *, heard_all: bool) -> tuple[Finding, ...]:
        living = {detector_origin(source, ref) for ref in self.jobs for source in SOURCES}
        gone = {detector_origin(source, ref) for ref in over for source in SOURCES}
        origins = [origin for origin in known.of_origin if origin not in living and (heard_all or origin in gone)]
        return findings_of_ended_jobs((each for origin in origins for each in known.of_origin[origin]), self._now)


def _without_rests(items: Iterable[T]) -> Iterable[T]:
    return items


class FindingChanges:
    """What changes between two snapshots of all findings: records are replaced, never changed."""

    def __init__(self) -> None:
        self._seen: Mapping[str, Finding] = {}

    def since_last(self, findings: Mapping[str, Finding]) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Return the findings that are new or replaced, and the ids of those that are gone."""
        before, self._seen = self._seen, findings
        if before is findings:
            return (), ()
        changed = tuple([each for name, each in findings.items() if before.get(name) is not each])
        return changed, tuple(before.keys() - findings.keys())


def _rank_report(update: NodeUpdate, ranks: Iterable[RankStatus], ref: JobRef) -> NodeRankReport:
    own = [r for r in ranks if r.attempt == ref.attempt and r.job == ref.job and is_possible_rank(r)]
    return NodeRankReport(update.node, own, update.seen_at, update.sent_at)

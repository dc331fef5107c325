"""One attempt of a job: its passes, each node's last report, and the findings that follow from both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from math import inf
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from remediator.detection.stragglers.signal_confirmation import JOBS_OWN_XIDS, LINK_ERRORS_MANY, MachineSignals
from remediator.model.detector_origin import is_concluded
from remediator.model.journal_records import JobRef
from remediator.monitoring import hang_findings, sdc_findings, straggler_findings
from remediator.monitoring.analysis_passes import AnalysisPasses
from remediator.monitoring.detector_findings import detector_origin, select_finding_changes
from remediator.monitoring.heartbeat_table import Ints, RankHeartbeat
from remediator.monitoring.heat_watch import HOT_SINCE, index_hot_gpus
from remediator.monitoring.rank_claims import settle_rank_claims
from remediator.monitoring.rank_groups import RankGroups
from remediator.monitoring.step_windows import (
    RANKS_PER_NODE,
    WORLD_MAX,
    NodeRankReport,
    is_possible_rank,
)
from vocabulary.finding import Finding, Severity
from vocabulary.identity import ComponentKind
from vocabulary.messages.heartbeat import Heartbeat, apply_heartbeat, read_windows
from vocabulary.messages.wire import ProductDigests, RankStatus

SILENT_S, LOOK_S = 3600.0, 60.0  # a node's report counts for so long; how often that is looked at
CHANGED_VOTE_S = 5.0  # between two votes while digests change, as when a job starts
VOTE_S = 600.0  # between two votes on the same digests, which keep their findings fresh
TOLD_TIMES = 3  # a window is read after a third of the time that it is sent for, so that one report may be lost
TOGETHER_S = 10.0  # heartbeats are read in batches of so long: the usual interval of a node
UNREAD_S = 15.0  # longest time that windows stay unread, whatever length a node reports
MOVES_AGAIN = "the job makes progress again"
XID_WITHIN_S = 3600.0
HELD_DOWN = ("throttle/*", "clocks/*")  # the node's own checks raise these only if they last
NARROW = ("pcie_link/*",)
LINK_SICK = ("infiniband/*", "ethernet/*", "nvlink/*", "pcie/*", "sxid/*")
NOT_SICK = ("infiniband/congested",)  # caused by the neighbours' traffic


class KnownFindings:
    """The findings of the cluster, indexed for the detectors."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._on_node: dict[str, list[Finding]] = {}
        self.of_origin: dict[str, list[Finding]] = {}
        # nodes by job and attempt, as named in the component
        self.stalled: dict[str, set[str]] = {}
        self.idle: dict[str, set[str]] = {}
        self.missing: list[Finding] = []  # ranks that NCCL's counts name
        findings = list(findings)
        self.hot = index_hot_gpus(findings)
        for finding in findings:
            if is_concluded(finding):
                self.of_origin.setdefault(finding.origin, []).append(finding)
                continue
            self._on_node.setdefault(finding.node, []).append(finding)
            if finding.active and finding.kind in (hang_findings.STALLED, hang_findings.IDLE):
                job = finding.component.name.partition(" of user ")[0]
                nodes = self.stalled if finding.kind == hang_findings.STALLED else self.idle
                nodes.setdefault(job, set()).add(finding.node)
            elif finding.active and finding.kind == hang_findings.MISSING:
                self.missing.append(finding)

    def own(self, node: str) -> Collection[Finding]:
        """Return a node's own findings."""
        return self._on_node.get(node, ())


class NodeHeartbeats(NamedTuple):
    """A node's new heartbeats, oldest first, received at `at` (UTC s), and all ranks of the report that they update."""

    node: str
    at: float
    whole: Sequence[RankStatus]
    heartbeats: Sequence[Heartbeat]


class NodeRanks(NamedTuple):
    """A node's ranks of one attempt, without step windows, and the heartbeat that updates them, if one has come since.

    `numbers` are those of `RankHeartbeat`; None if the node has other ranks too, or odd ones.
    """

    report: NodeRankReport
    at: float
    numbers: Ints | None = None
    told: NodeHeartbeats | None = None

    def now(self) -> NodeRankReport:
        """Return the node's ranks as of its heartbeat."""
        return self.report if self.told is None else self.with_windows(())

    def with_windows(self, heartbeats: Sequence[Heartbeat]) -> NodeRankReport:
        """Return the node's ranks as of its newest heartbeat, with the windows of these, which have the same ranks."""
        assert self.told is not None  # noqa: S101 - a heartbeat has come
        newest = self.told.heartbeats[-1]
        ranks = apply_heartbeat(self.told.whole, newest)
        if heartbeats:
            new = zip(*map(read_windows, heartbeats), strict=True)
            ranks = [
                replace(rank, windows=tuple(chain.from_iterable(each))) for rank, each in zip(ranks, new, strict=True)
            ]
        mine = [rank for rank in ranks if _is_of(rank, self.report.ranks[0])] if self.report.ranks else []
        return NodeRankReport(self.report.node, list(filter(is_possible_rank, mine)), self.at, newest.sent_at)


class JobMonitor:
    """`words` holds the ranks of each node of this attempt as it last reported them, dead ones included."""

    def __init__(self, ref: JobRef) -> None:
        self.ref = ref
        self.words: dict[str, NodeRanks] = {}
        self._crews = RankGroups()
        self._due: dict[str, float] = {}  # by node: when its windows are due again, UTC s
        self._waiting: dict[str, Sequence[Heartbeat]] = {}  # by node: those whose windows are unread
        self._read_at = self._looked_at = -inf  # UTC s
        self._voted_at, self._vote_due = 0.0, 0.0  # UTC s

    def wants(self, node: str, at: float) -> bool:
        """Return whether to read the windows of a report made then: most were read before, and decoding is expensive."""
        return at >= self._due.get(node, 0.0) or node in self._waiting

    def note(self, word: NodeRankReport) -> None:
        """Store a node's new report, without windows."""
        before = self.words.get(word.node)
        if _list_digests(before.report if before is not None else None) != _list_digests(word):
            self._vote_due = min(self._vote_due, self._voted_at + CHANGED_VOTE_S)
        self.words[word.node] = NodeRanks(word, word.at)

    def take(self, heard: Collection[NodeRankReport]) -> None:
        """Take in new reports, with windows."""
        for word in heard:
            self._waiting.pop(word.node, None)  # of an older report; this one repeats its windows
            self.note(_drop_windows(word))
        self._due |= {word.node: word.at + min(_window_span_s(word) / TOLD_TIMES, UNREAD_S) for word in heard}
        self._take(heard)

    def beat(self, heard: Iterable[NodeHeartbeats]) -> None:
        """Note new heartbeats. Their windows wait for `read_waiting`."""
        for told in heard:
            known = self.words.get(told.node)
            if known is None or known.told is None or known.told.whole is not told.whole:
                known = self._begin_heartbeats(told)
            waiting = self._waiting.get(told.node, ())
            self._waiting[told.node] = told.heartbeats if not waiting else (*waiting, *told.heartbeats)
            self.words[told.node] = known._replace(at=told.at, told=told._replace(heartbeats=told.heartbeats[-1:]))

    def read_waiting(self, now: float) -> None:
        """Take in the windows of heartbeats, every few seconds: arrays of many nodes cost little more than those of few.

        Nodes whose ranks all have their place are read as arrays, the others rank by rank.
        """
        if now < self._read_at + TOGETHER_S and now >= self._read_at:
            return
        self._read_at = now
        waiting, self._waiting = self._waiting, {}
        rounds: list[list[RankHeartbeat]] = [[]]  # the first of each node, the second ones, and so on
        others: list[NodeRankReport] = []
        for node, heartbeats in waiting.items():
            known = self.words.get(node)
            if known is None or known.told is None:
                continue
            if known.numbers is None or not self._crews.holds_all_of(node):
                others.append(known.with_windows(heartbeats))
                continue
            rounds += [[] for _ in range(len(heartbeats) - len(rounds))]
            for number, heartbeat in enumerate(heartbeats):
                rounds[number].append(RankHeartbeat(node, known.at, known.numbers, heartbeat))
        self._take(others, rounds[0])
        for later in rounds[1:]:
            self._take((), later)

    def _begin_heartbeats(self, told: NodeHeartbeats) -> NodeRanks:
        own = [rank for rank in told.whole if rank.attempt == self.ref.attempt and rank.job == self.ref.job]
        report = NodeRankReport(told.node, list(filter(is_possible_rank, own)), told.at, told.heartbeats[-1].sent_at)
        return NodeRanks(report, told.at, rank_numbers(own) if len(own) == len(told.whole) else None)

    def _take(self, heard: Collection[NodeRankReport], heartbeats: Sequence[RankHeartbeat] = ()) -> None:
        try:
            self._crews.take(heard, heartbeats)
        except Exception:
            self._crews = RankGroups()  # half of these may have been taken in
            raise

    def lives(self, now: float) -> bool:
        """Return whether any rank is alive by its node's last report.

        The report of a node that was silent for long does not count.
        """
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self.words = {node: word for node, word in self.words.items() if now - word.at < SILENT_S}
            self._due = {node: due for node, due in self._due.items() if node in self.words}
        return any(rank.alive for word in self.words.values() for rank in word.report.ranks)

    def judgements(
        self, known: KnownFindings, has_reported: Callable[[str], bool], now: float
    ) -> list[Callable[[], tuple[Finding, ...]]]:
        """Return the detectors of this job as separate calls: where one raises, the others still run.

        Args:
            known: the findings there are.
            has_reported: whether a node has reported recently.
            now: UTC seconds.
        """
        return [
            *(partial(self._slow, crew, known, now) for crew in self._crews),
            partial(self._stuck, known, has_reported, now),
            partial(self._corrupt, known, has_reported, now),
        ]

    def _slow(self, crew: AnalysisPasses, known: KnownFindings, now: float) -> tuple[Finding, ...]:
        crew.judge(now)
        of_job = known.of_origin.get(detector_origin(straggler_findings.SOURCE, self.ref), ())
        before = [finding for finding in of_job if self._crews.of(finding.node) in (crew, None)]
        seats, as_of = crew.timings.seats, crew.last
        conclusion, hot = crew.conclusion, crew.heat.find_suspect(crew.timings, known.hot, before, now)
        if hot is not None:
            as_of = max(as_of, hot.heard_at)
        elif conclusion is None:  # nothing but heat can have been concluded
            before = [finding for finding in before if HOT_SINCE in finding.evidence and crew.heat.is_recent(now)]
            as_of = now
        job = straggler_findings.StragglerContext(
            self.ref, seats, lambda node, gpu: machine_signals(known.own(node), gpu, now), before, hot
        )
        found = straggler_findings.build_straggler_findings(job, conclusion, crew.since, now)
        return select_finding_changes(
            before, found, now, lambda finding: straggler_findings.straggler_end_reason(finding, seats), as_of
        )

    def _stuck(self, known: KnownFindings, has_reported: Callable[[str], bool], now: float) -> tuple[Finding, ...]:
        before = known.of_origin.get(detector_origin(hang_findings.SOURCE, self.ref), ())
        name = straggler_findings.job_component(self.ref).name
        stalled, idle = known.stalled.get(name, set()), known.idle.get(name, set())
        if not stalled and not idle and not known.missing and not any(finding.active for finding in before):
            return ()
        claims = settle_rank_claims([word.now() for word in self.words.values()], has_reported)
        if not claims.reported or not claims.complete:  # a missing rank may be the one that the others wait for
            return ()
        found = None
        witnessed = _find_witnessed_ranks(claims.reported, idle, known.missing)
        if hang_findings.is_job_stalled(claims.reported, stalled) or (
            witnessed and hang_findings.stands_still(claims.reported)
        ):
            sick = {node for node in self.words if has_node_fault(known.own(node))}
            found = hang_findings.build_hang_finding(
                hang_findings.StalledJob(self.ref, claims.reported, claims.silent, stalled, sick, witnessed), now
            )
        heard_at = max(word.at for word in claims.reported)
        return select_finding_changes(
            before, [found] if found is not None else [], now, lambda _: MOVES_AGAIN, heard_at
        )

    def _corrupt(self, known: KnownFindings, has_reported: Callable[[str], bool], now: float) -> tuple[Finding, ...]:
        if now < self._vote_due:
            return ()
        self._voted_at, self._vote_due = now, now + VOTE_S
        if not any(_list_digests(word.report) for word in self.words.values()):
            return ()
        reported = settle_rank_claims([word.now() for word in self.words.values()], has_reported).reported
        digests = sdc_findings.collect_digests(reported)
        if not digests:
            return ()
        before = known.of_origin.get(detector_origin(sdc_findings.SOURCE, self.ref), ())
        found = sdc_findings.build_sdc_findings(self.ref, digests, now)
        heard_at = max(word.at for word in reported)
        return select_finding_changes(before, found, now, sdc_findings.sdc_end_reason, heard_at)


def _find_witnessed_ranks(
    reported: Collection[NodeRankReport], idle: Collection[str], missing: Collection[Finding]
) -> set[int]:
    """Return the ranks of nodes that report an idle one, and those that NCCL's counts name."""
    return {
        rank.rank
        for word in reported
        for rank in word.ranks
        if word.node in idle or any(hang_findings.is_rank_named(finding, word.node, rank) for finding in missing)
    }


def rank_numbers(ranks: Sequence[RankStatus]) -> Ints | None:
    """Return the ranks' numbers, -1 for one that has ended; None where only a whole report can place them all."""
    living = [rank for rank in ranks if rank.alive]
    if len(living) > RANKS_PER_NODE or len({rank.world for rank in living}) > 1:
        return None
    if not all(is_possible_rank(rank) and 0 <= rank.rank < min(rank.world, WORLD_MAX) for rank in living):
        return None
    return np.array([rank.rank if rank.alive else -1 for rank in ranks], dtype=np.int64)


def _is_of(rank: RankStatus, other: RankStatus) -> bool:
    return rank.attempt == other.attempt and rank.job == other.job


def _drop_windows(word: NodeRankReport) -> NodeRankReport:
    """Drop the windows: they are more than half of a report, and the groups' matrices hold them already."""
    return word._replace(ranks=[replace(rank, windows=()) if rank.windows else rank for rank in word.ranks])


def _list_digests(word: NodeRankReport | None) -> list[tuple[int, int, ProductDigests]]:
    """Return the digests of a node's living ranks, by rank and process."""
    ranks = word.ranks if word is not None else ()
    return [(rank.rank, rank.pid, rank.digests) for rank in ranks if rank.digests is not None and rank.alive]


def _window_span_s(word: NodeRankReport) -> float:
    """Return how many seconds the windows cover, for the rank whose windows cover least."""
    spans = [(rank.windows[0], rank.windows[-1]) for rank in word.ranks if rank.windows]
    return min((float(last.first + last.size - first.first) * last.step_s for first, last in spans), default=0.0)


def machine_signals(findings: Iterable[Finding], gpu: str, now: float) -> MachineSignals:
    """Return the signals about one culprit besides timing: independent evidence for a verdict.

    Args:
        findings: the node's own, active or recent; without the controller's conclusions.
        gpu: UUID of the culprit's GPU, empty for the whole node or an unknown GPU.
        now: UTC seconds.
    """
    held_down = narrow = sick = False
    xids = set[int]()
    for finding in findings:
        if not _finding_concerns_gpu(finding, gpu):
            continue
        if finding.check == "xid":
            if finding.code.isdecimal() and (finding.active or now - finding.last_seen < XID_WITHIN_S):
                xids.add(int(finding.code))
        elif finding.active and finding.severity is not Severity.INFO:
            held_down |= _any_pattern_fits(finding.kind, HELD_DOWN)
            narrow |= _any_pattern_fits(finding.kind, NARROW)
            sick |= _any_pattern_fits(finding.kind, LINK_SICK) and not _any_pattern_fits(finding.kind, NOT_SICK)
    return MachineSignals(
        throttled=1.0 if held_down else None,
        xids=tuple(sorted(xids - JOBS_OWN_XIDS)),
        pcie_narrow=narrow or None,
        link_errors=2 * LINK_ERRORS_MANY if sick else None,  # its check raised it: above every usual rate
    )


def has_node_fault(findings: Iterable[Finding]) -> bool:
    """Return whether the node asserts a fault of its own hardware; faults of a job or of our agent do not count."""
    critical = {Severity.ERROR, Severity.FATAL}
    apart = {ComponentKind.RANK, ComponentKind.AGENT}
    return any(f.active and f.severity in critical and f.component.kind not in apart for f in findings)


def _finding_concerns_gpu(finding: Finding, gpu: str) -> bool:
    return finding.component.kind is not ComponentKind.GPU or not gpu or finding.component.name in ("", gpu)


def _any_pattern_fits(kind: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(kind, pattern) for pattern in patterns)

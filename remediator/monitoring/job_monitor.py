"""One attempt of a job: its passes, each node's last report, and the findings that follow from both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from msgspec.structs import replace

from remediator.model.detector_origin import is_concluded
from remediator.model.journal_records import JobRef
from remediator.monitoring import hang_findings, straggler_findings
from remediator.monitoring.analysis_passes import AnalysisPasses
from remediator.monitoring.confirming_signals import has_node_fault, machine_signals
from remediator.monitoring.detector_findings import detector_origin, select_finding_changes
from remediator.monitoring.rank_claims import settle_rank_claims
from remediator.monitoring.rank_groups import RankGroups
from remediator.monitoring.step_windows import NodeRankReport
from vocabulary.finding import Finding

SILENT_S = 3600.0
TOLD_TIMES = 3  # a window is read after a third of the time that it is sent for, so that one report may be lost
UNHEARD_S = 15.0  # longest time that windows stay unread, whatever length a node reports
MOVES_AGAIN = "the job makes progress again"


class KnownFindings:
    """The findings of the cluster, indexed for the detectors."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._on_node: dict[str, list[Finding]] = {}
        self.of_origin: dict[str, list[Finding]] = {}
        self.stalled: dict[str, set[str]] = {}  # nodes by job and attempt, as named in the component
        for finding in findings:
            if is_concluded(finding):
                self.of_origin.setdefault(finding.origin, []).append(finding)
                continue
            self._on_node.setdefault(finding.node, []).append(finding)
            if finding.active and finding.kind == hang_findings.STALLED:
                job = finding.component.name.partition(" of user ")[0]
                self.stalled.setdefault(job, set()).add(finding.node)

    def own(self, node: str) -> Collection[Finding]:
        """Return a node's own findings."""
        return self._on_node.get(node, ())


class JobMonitor:
    """`words` holds the last report of each node with ranks of this attempt, dead ones included, without step windows."""

    def __init__(self, ref: JobRef) -> None:
        self.ref = ref
        self.words: dict[str, NodeRankReport] = {}
        self._crews = RankGroups()
        self._due: dict[str, float] = {}  # by node: when its windows are due again, UTC s

    def wants(self, node: str, at: float) -> bool:
        """Return whether to read the windows of a report made then: most were read before, and decoding is expensive."""
        return at >= self._due.get(node, 0.0)

    def note(self, word: NodeRankReport) -> None:
        """Store a node's new report, without windows."""
        self.words[word.node] = word

    def take(self, heard: Collection[NodeRankReport]) -> None:
        """Take in new reports, with windows."""
        self.words |= {word.node: _drop_windows(word) for word in heard}
        self._due |= {word.node: word.at + min(_window_span_s(word) / TOLD_TIMES, UNHEARD_S) for word in heard}
        try:
            self._crews.take(heard)
        except Exception:
            self._crews = RankGroups()  # half of these may have been taken in
            raise

    def lives(self, now: float) -> bool:
        """Return whether any rank is alive by its node's last report.

        The report of a node that was silent for long does not count.
        """
        self.words = {node: word for node, word in self.words.items() if now - word.at < SILENT_S}
        self._due = {node: due for node, due in self._due.items() if node in self.words}
        return any(rank.alive for word in self.words.values() for rank in word.ranks)

    def judgements(
        self, known: KnownFindings, speaks: Callable[[str], bool], now: float
    ) -> list[Callable[[], tuple[Finding, ...]]]:
        """Return the detectors of this job as separate calls: where one raises, the others still run.

        Args:
            known: the findings there are.
            speaks: whether a node has reported recently.
            now: UTC seconds.
        """
        return [
            *(partial(self._slow, crew, known, now) for crew in self._crews),
            partial(self._stuck, known, speaks, now),
        ]

    def _slow(self, crew: AnalysisPasses, known: KnownFindings, now: float) -> tuple[Finding, ...]:
        crew.judge(now)
        standing = crew.standing
        if standing is None:
            return ()
        of_job = known.of_origin.get(detector_origin(straggler_findings.SOURCE, self.ref), ())
        before = [finding for finding in of_job if self._crews.of(finding.node) in (crew, None)]
        seats = crew.timings.seats
        job = straggler_findings.StragglerContext(
            self.ref, seats, lambda node, gpu: machine_signals(known.own(node), gpu, now), before
        )
        found = straggler_findings.build_straggler_findings(job, standing, crew.since, now)
        return select_finding_changes(
            before, found, now, lambda finding: straggler_findings.straggler_end_reason(finding, seats), crew.last
        )

    def _stuck(self, known: KnownFindings, speaks: Callable[[str], bool], now: float) -> tuple[Finding, ...]:
        before = known.of_origin.get(detector_origin(hang_findings.SOURCE, self.ref), ())
        stalled = known.stalled.get(straggler_findings.job_component(self.ref).name, set())
        if not stalled and not any(finding.active for finding in before):
            return ()
        claims = settle_rank_claims(self.words.values(), speaks)
        if not claims.heard or not claims.whole:  # a missing rank may be the one that the others wait for
            return ()
        found = None
        if hang_findings.is_job_stalled(claims.heard, stalled):
            sick = {node for node in self.words if has_node_fault(known.own(node))}
            found = hang_findings.build_hang_finding(
                hang_findings.StalledJob(self.ref, claims.heard, claims.silent, stalled, sick), now
            )
        heard_at = max(word.at for word in claims.heard)
        return select_finding_changes(
            before, [found] if found is not None else [], now, lambda _: MOVES_AGAIN, heard_at
        )


def _drop_windows(word: NodeRankReport) -> NodeRankReport:
    """Drop the windows: they are more than half of a report, and the groups' matrices hold them already."""
    return word._replace(ranks=[replace(rank, windows=()) if rank.windows else rank for rank in word.ranks])


def _window_span_s(word: NodeRankReport) -> float:
    """Return how many seconds the windows cover, for the rank whose windows cover least."""
    spans = [(rank.windows[0], rank.windows[-1]) for rank in word.ranks if rank.windows]
    return min((float(last.first + last.size - first.first) * last.step_s for first, last in spans), default=0.0)

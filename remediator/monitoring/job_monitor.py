"""One attempt of a job as its nodes tell of it: its passes, the last word of each node, and what follows from both. Pure."""

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
TOLD_TIMES = 3  # a window is heard after a third of the time that it is told for, so that a report may be lost
UNHEARD_S = 15.0  # longer are no windows left unheard, whatever a node says of their length
MOVES_AGAIN = "the job moves again"


class KnownFindings:
    """The findings of the cluster, as the judgements look them up."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._on_node: dict[str, list[Finding]] = {}
        self.of_origin: dict[str, list[Finding]] = {}
        self.stalled: dict[str, set[str]] = {}  # by job and attempt, as the component is named: nodes
        for finding in findings:
            if is_concluded(finding):
                self.of_origin.setdefault(finding.origin, []).append(finding)
                continue
            self._on_node.setdefault(finding.node, []).append(finding)
            if finding.active and finding.kind == hang_findings.STALLED:
                job = finding.component.name.partition(" of user ")[0]
                self.stalled.setdefault(job, set()).add(finding.node)

    def own(self, node: str) -> Collection[Finding]:
        """What a node says of itself."""
        return self._on_node.get(node, ())


class JobMonitor:
    """`words` are the last of each node that has ranks of this attempt, dead ones included, without their windows of steps."""

    def __init__(self, ref: JobRef) -> None:
        self.ref = ref
        self.words: dict[str, NodeRankReport] = {}
        self._crews = RankGroups()
        self._due: dict[str, float] = {}  # by node: from when on its windows are wanted again, UTC s

    def wants(self, node: str, at: float) -> bool:
        """Whether what a node said at that time is to be heard with its windows: most of them were heard before, and all are dear."""
        return at >= self._due.get(node, 0.0)

    def note(self, word: NodeRankReport) -> None:
        """A new word of a node, without windows."""
        self.words[word.node] = word

    def take(self, heard: Collection[NodeRankReport]) -> None:
        """New words of nodes, with windows."""
        self.words |= {word.node: _drop_windows(word) for word in heard}
        self._due |= {word.node: word.at + min(_window_span_s(word) / TOLD_TIMES, UNHEARD_S) for word in heard}
        try:
            self._crews.take(heard)
        except Exception:
            self._crews = RankGroups()  # of these, half may have been taken in
            raise

    def lives(self, now: float) -> bool:
        """Whether any rank of it does, by the last word of its node; one that was silent for long has no word any more."""
        self.words = {node: word for node, word in self.words.items() if now - word.at < SILENT_S}
        self._due = {node: due for node, due in self._due.items() if node in self.words}
        return any(rank.alive for word in self.words.values() for rank in word.ranks)

    def judgements(
        self, known: KnownFindings, speaks: Callable[[str], bool], now: float
    ) -> list[Callable[[], tuple[Finding, ...]]]:
        """What tells the news about it, in parts: where one raises, the others have their say.

        Args:
            known: the findings there are.
            speaks: whether a node was heard lately.
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
        if not claims.heard or not claims.whole:  # who is missing may be the one that the others wait for
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
    """They are more than half of a report, and are in the crews' matrices once they were heard."""
    return word._replace(ranks=[replace(rank, windows=()) if rank.windows else rank for rank in word.ranks])


def _window_span_s(word: NodeRankReport) -> float:
    """For how many seconds its windows tell of its steps, by the rank whose tell of least."""
    spans = [(rank.windows[0], rank.windows[-1]) for rank in word.ranks if rank.windows]
    return min((float(last.first + last.size - first.first) * last.step_s for first, last in spans), default=0.0)

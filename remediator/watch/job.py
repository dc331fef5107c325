"""One attempt of a job as its nodes tell of it: its passes, the last word of each node, and what follows from both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from msgspec.structs import replace

from remediator.model.concluded import is_concluded
from remediator.model.records import JobRef
from remediator.watch import slow, stuck
from remediator.watch.claims import settled
from remediator.watch.conclusions import news, origin_of
from remediator.watch.crews import Crews
from remediator.watch.passes import Passes
from remediator.watch.timings import Heard
from remediator.watch.witness import is_sick, signals
from vocabulary.finding import Finding

SILENT_S = 3600.0
TOLD_TIMES = 3  # a window is heard after a third of the time that it is told for, so that a report may be lost
UNHEARD_S = 15.0  # longer are no windows left unheard, whatever a node says of their length
MOVES_AGAIN = "the job moves again"


class Known:
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
            if finding.active and finding.kind == stuck.STALLED:
                job = finding.component.name.partition(" of user ")[0]
                self.stalled.setdefault(job, set()).add(finding.node)

    def own(self, node: str) -> Collection[Finding]:
        """What a node says of itself."""
        return self._on_node.get(node, ())


class JobWatch:
    """`words` are the last of each node that has ranks of this attempt, dead ones included, without their windows of steps."""

    def __init__(self, ref: JobRef) -> None:
        self.ref = ref
        self.words: dict[str, Heard] = {}
        self._crews = Crews()
        self._due: dict[str, float] = {}  # by node: from when on its windows are wanted again, UTC s

    def wants(self, node: str, at: float) -> bool:
        """Whether what a node said at that time is to be heard with its windows: most of them were heard before, and all are dear."""
        return at >= self._due.get(node, 0.0)

    def note(self, word: Heard) -> None:
        """A new word of a node, without windows."""
        self.words[word.node] = word

    def take(self, heard: Collection[Heard]) -> None:
        """New words of nodes, with windows."""
        self.words |= {word.node: _without_windows(word) for word in heard}
        self._due |= {word.node: word.at + min(_lasting(word) / TOLD_TIMES, UNHEARD_S) for word in heard}
        try:
            self._crews.take(heard)
        except Exception:
            self._crews = Crews()  # of these, half may have been taken in
            raise

    def lives(self, now: float) -> bool:
        """Whether any rank of it does, by the last word of its node; one that was silent for long has no word any more."""
        self.words = {node: word for node, word in self.words.items() if now - word.at < SILENT_S}
        self._due = {node: due for node, due in self._due.items() if node in self.words}
        return any(rank.alive for word in self.words.values() for rank in word.ranks)

    def judgements(
        self, known: Known, speaks: Callable[[str], bool], now: float
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

    def _slow(self, crew: Passes, known: Known, now: float) -> tuple[Finding, ...]:
        crew.judge(now)
        standing = crew.standing
        if standing is None:
            return ()
        of_job = known.of_origin.get(origin_of(slow.SOURCE, self.ref), ())
        before = [finding for finding in of_job if self._crews.of(finding.node) in (crew, None)]
        seats = crew.timings.seats
        job = slow.Job(self.ref, seats, lambda node, gpu: signals(known.own(node), gpu, now), before)
        found = slow.findings(job, standing, crew.since, now)
        return news(before, found, now, lambda finding: slow.over(finding, seats), crew.last)

    def _stuck(self, known: Known, speaks: Callable[[str], bool], now: float) -> tuple[Finding, ...]:
        before = known.of_origin.get(origin_of(stuck.SOURCE, self.ref), ())
        stalled = known.stalled.get(slow.of_job(self.ref).name, set())
        if not stalled and not any(finding.active for finding in before):
            return ()
        claims = settled(self.words.values(), speaks)
        if not claims.heard or not claims.whole:  # who is missing may be the one that the others wait for
            return ()
        found = None
        if stuck.stands_still(claims.heard, stalled):
            sick = {node for node in self.words if is_sick(known.own(node))}
            found = stuck.finding(stuck.Standstill(self.ref, claims.heard, claims.silent, stalled, sick), now)
        heard_at = max(word.at for word in claims.heard)
        return news(before, [found] if found is not None else [], now, lambda _: MOVES_AGAIN, heard_at)


def _without_windows(word: Heard) -> Heard:
    """They are more than half of a report, and are in the crews' matrices once they were heard."""
    return word._replace(ranks=[replace(rank, windows=()) if rank.windows else rank for rank in word.ranks])


def _lasting(word: Heard) -> float:
    """For how many seconds its windows tell of its steps, by the rank whose tell of least."""
    spans = [(rank.windows[0], rank.windows[-1]) for rank in word.ranks if rank.windows]
    return min((float(last.first + last.size - first.first) * last.step_s for first, last in spans), default=0.0)

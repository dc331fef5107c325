"""What happened within the longest window a rule may name, indexed for counting by component, node, job and kind.

Bounded in time and in number: of a node, a job and a kind only the newest are kept. Losing older ones can only make a
count smaller, and so an answer milder.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from remediator.model.occurrence import Occurrence
from remediator.model.rules import WINDOW_MAX_S, Clause, Distinct, Scope

LOOK_S = 3600.0
NODE_MAX, JOB_MAX, KIND_MAX = 1000, 5000, 20_000


class Subject(msgspec.Struct, frozen=True):
    """The finding that a count is asked for: everything a scope may refer to."""

    kind: str
    node: str
    component: str
    jobs: tuple[str, ...]


class History:
    """Occurrences in the order they came; times never run backwards by more than a late report's delay."""

    def __init__(self) -> None:
        self._by_node: defaultdict[str, deque[Occurrence]] = defaultdict(lambda: deque(maxlen=NODE_MAX))
        self._by_job: defaultdict[str, deque[Occurrence]] = defaultdict(lambda: deque(maxlen=JOB_MAX))
        self._by_kind: defaultdict[str, deque[Occurrence]] = defaultdict(lambda: deque(maxlen=KIND_MAX))
        self._looked_at = 0.0

    def add(self, occurrence: Occurrence) -> None:
        """Remember one more."""
        self._by_node[occurrence.node].append(occurrence)
        self._by_kind[occurrence.kind].append(occurrence)
        for job in occurrence.jobs:
            self._by_job[job].append(occurrence)

    def forget(self, now: float) -> None:
        """Drop what no window reaches any more; looks once an hour, however often it is called."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        for index in (self._by_node, self._by_job, self._by_kind):
            for key in [key for key, kept in index.items() if _trim(kept, now)]:
                del index[key]

    def count(self, clause: Clause, subject: Subject, now: float) -> int:
        """How often what `clause` names happened around `subject` until `now`. Of several jobs, the largest count."""
        if clause.scope is Scope.JOB:
            return max((_tally(self._within(clause, subject, self._by_job.get(job, ()), now), clause.distinct)
                        for job in subject.jobs), default=0)  # fmt: skip
        if clause.scope is Scope.CLUSTER:
            kinds = [kept for kind, kept in self._by_kind.items() if _names(clause, subject, kind)]
            return _tally([o for kept in kinds for o in self._within(clause, subject, kept, now)], clause.distinct)
        found = self._within(clause, subject, self._by_node.get(subject.node, ()), now)
        if clause.scope is Scope.COMPONENT:
            found = [o for o in found if o.component == subject.component]
        if clause.distinct is Distinct.JOBS:
            return sum(self._only_here(job, clause, subject, now) for job in {j for o in found for j in o.jobs})
        return _tally(found, clause.distinct)

    def _only_here(self, job: str, clause: Clause, subject: Subject, now: float) -> bool:
        met_at = {o.node for o in self._within(clause, subject, self._by_job.get(job, ()), now)}
        return met_at == {subject.node}

    @staticmethod
    def _within(clause: Clause, subject: Subject, kept: Iterable[Occurrence], now: float) -> list[Occurrence]:
        since = now - clause.within_s
        return [o for o in kept if o.at > since and _names(clause, subject, o.kind)]


def _names(clause: Clause, subject: Subject, kind: str) -> bool:
    if not clause.of:
        return kind == subject.kind
    return any(fnmatchcase(kind, pattern) for pattern in clause.of)


def _tally(found: list[Occurrence], distinct: Distinct) -> int:
    if distinct is Distinct.NODES:
        return len({o.node for o in found})
    if distinct is Distinct.COMPONENTS:
        return len({(o.node, o.component) for o in found})
    if distinct is Distinct.JOBS:
        return len({job for o in found for job in o.jobs})
    return sum(o.count for o in found)


def _trim(kept: deque[Occurrence], now: float) -> bool:
    while kept and now - kept[0].at > WINDOW_MAX_S:
        kept.popleft()
    return not kept

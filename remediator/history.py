"""What happened within the longest window a rule may name, indexed for counting by component, node, job and kind.

Bounded in time and in number: of a node, a job and a kind only the newest are kept. Losing older ones can only make a
count smaller, and so an answer milder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec

from remediator.model.occurrence import Occurrence
from remediator.model.rules import WINDOW_MAX_S, Clause, Distinct, Scope

LOOK_S = 3600.0
NODE_MAX, JOB_MAX, CLUSTER_MAX = 1000, 5000, 20_000  # of one kind


class Subject(msgspec.Struct, frozen=True):
    """The finding that a count is asked for: everything a scope may refer to."""

    kind: str
    node: str
    component: str
    jobs: tuple[str, ...]
    incident: str = ""
    injected: bool = False


class History:
    """Occurrences by the time they speak of, whenever they came."""

    def __init__(self) -> None:
        self._by_node: dict[str, _Log] = {}
        self._by_job: dict[str, _Log] = {}
        self._everywhere = _Log(CLUSTER_MAX)
        self._looked_at = 0.0

    def add(self, occurrence: Occurrence) -> None:
        """Remember one more."""
        self._everywhere.add(occurrence)
        self._by_node.setdefault(occurrence.node, _Log(NODE_MAX)).add(occurrence)
        for job in occurrence.jobs:
            self._by_job.setdefault(job, _Log(JOB_MAX)).add(occurrence)

    def forget(self, now: float) -> None:
        """Drop what no window reaches any more; looks once an hour, however often it is called."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._everywhere.trim(now - WINDOW_MAX_S)
        for index in (self._by_node, self._by_job):
            for key in [key for key, log in index.items() if log.trim(now - WINDOW_MAX_S)]:
                del index[key]

    def count(self, clause: Clause, subject: Subject, now: float) -> int:
        """How often what `clause` names happened around `subject` until `now`. Of several jobs, the largest count."""
        if clause.scope is Scope.JOB:
            logs = [self._by_job[job] for job in subject.jobs if job in self._by_job]
            return max((_tally(_recent(log, clause, subject, now), clause.distinct) for log in logs), default=0)
        if clause.scope is Scope.CLUSTER:
            return _tally(_recent(self._everywhere, clause, subject, now), clause.distinct)
        log = self._by_node.get(subject.node)
        found: Iterable[Occurrence] = () if log is None else _recent(log, clause, subject, now)
        if clause.scope is Scope.COMPONENT:
            found = [o for o in found if o.component == subject.component]
        if clause.distinct is Distinct.JOBS:
            wide = {job for o in found if o.job_nodes > 1 for job in o.jobs}
            return sum(self._only_here(job, clause, subject, now) for job in wide)
        return _tally(found, clause.distinct)

    def _only_here(self, job: str, clause: Clause, subject: Subject, now: float) -> bool:
        return all(o.node == subject.node for o in _recent(self._by_job[job], clause, subject, now))


class _Log:
    """The newest occurrences of each kind, oldest first."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._by_kind: dict[str, deque[Occurrence]] = {}

    def add(self, occurrence: Occurrence) -> None:
        kept = self._by_kind.setdefault(occurrence.kind, deque())
        if not kept or kept[-1].at <= occurrence.at:
            kept.append(occurrence)
        else:  # a late report
            kept.insert(bisect_right(kept, occurrence.at, key=lambda o: o.at), occurrence)
        if len(kept) > self._kept_max:
            kept.popleft()

    def trim(self, since: float) -> bool:
        """Drop what is older. Returns whether nothing is left."""
        for kind, kept in list(self._by_kind.items()):
            while kept and kept[0].at < since:
                kept.popleft()
            if not kept:
                del self._by_kind[kind]
        return not self._by_kind

    def kinds(self) -> Iterable[str]:
        return self._by_kind

    def newest_first(self, kind: str) -> Iterator[Occurrence]:
        return reversed(self._by_kind.get(kind, ()))


def _recent(log: _Log, clause: Clause, subject: Subject, now: float) -> Iterator[Occurrence]:
    """What the clause names, newest first, back to the beginning of its window."""
    since = now - clause.within_s
    for kind in _kinds(log, clause, subject):
        for occurrence in log.newest_first(kind):
            if occurrence.at <= since:
                break
            own = occurrence.incident and occurrence.incident == subject.incident
            if not own and (subject.injected or not occurrence.injected):
                yield occurrence


def _kinds(log: _Log, clause: Clause, subject: Subject) -> Iterable[str]:
    if not clause.of:
        return (subject.kind,)
    return [kind for kind in log.kinds() if any(fnmatchcase(kind, pattern) for pattern in clause.of)]


def _tally(found: Iterable[Occurrence], distinct: Distinct) -> int:
    if distinct is Distinct.NODES:
        return len({o.node for o in found})
    if distinct is Distinct.COMPONENTS:
        return len({(o.node, o.component) for o in found})
    if distinct in (Distinct.JOBS, Distinct.ALL_JOBS):
        return len({job for o in found for job in o.jobs})
    if distinct is Distinct.INCIDENTS:
        return len({o.incident for o in found})
    return sum(o.count for o in found)

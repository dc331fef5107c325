"""Occurrences within the longest window a rule may name, indexed by component, node, job and kind.

Bounded in time and number: only the newest are kept per node, job and kind. Losing older ones can only lower a count,
and so make the reaction milder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import takewhile

import msgspec

from remediator.model.occurrence import Occurrence
from remediator.model.rule_conditions import WINDOW_MAX_S, CountCondition, Distinct, Scope

LOOK_S = 3600.0
NODE_MAX, JOB_MAX, CLUSTER_MAX = 1000, 5000, 20_000  # per kind
ROUNDING_S = 0.001  # what has just left a window is still mentioned
KINDS_MAX = 500  # per node, which may name its findings as it likes


class CountSubject(msgspec.Struct, frozen=True):
    """The finding that a count is requested for: everything a scope may refer to."""

    kind: str
    node: str
    component: str
    jobs: tuple[str, ...]
    incident: str = ""
    injected: bool = False


class OccurrenceHistory:
    """Occurrences by the time they report, whenever they arrived."""

    def __init__(self) -> None:
        self._by_node: dict[str, _OccurrenceLog] = {}
        self._by_job: dict[str, _OccurrenceLog] = {}
        self._everywhere = _OccurrenceLog(CLUSTER_MAX)
        self._looked_at = 0.0

    def add(self, occurrence: Occurrence) -> None:
        """Add one occurrence."""
        self._everywhere.add(occurrence)
        self._by_node.setdefault(occurrence.node, _OccurrenceLog(NODE_MAX)).add(occurrence)
        for job in occurrence.jobs:
            self._by_job.setdefault(job, _OccurrenceLog(JOB_MAX)).add(occurrence)

    def has_room(self, node: str, kind: str) -> bool:
        """Return whether one more kind of findings of a node may be counted by its name."""
        log = self._by_node.get(node)
        return log is None or len(log.kinds) < KINDS_MAX or kind in log.kinds

    def forget(self, now: float) -> None:
        """Drop what is older than every window; works at most once an hour, however often it is called."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._everywhere.trim(now - WINDOW_MAX_S)
        for index in (self._by_node, self._by_job):
            for key in [key for key, log in index.items() if log.trim(now - WINDOW_MAX_S)]:
                del index[key]

    def count(self, clause: CountCondition, subject: CountSubject, now: float) -> int:
        """Count occurrences that match `clause` around `subject` until `now`. Of several jobs, the largest count."""
        since = now - clause.within_s
        if clause.scope is Scope.JOB:
            logs = [self._by_job[job] for job in subject.jobs if job in self._by_job]
            return max((_count_matching(log, clause, subject, since) for log in logs), default=0)
        if clause.scope is Scope.CLUSTER:
            return _count_matching(self._everywhere, clause, subject, since)
        log = self._by_node.get(subject.node)
        if log is None:
            return 0
        if clause.distinct is Distinct.JOBS:
            wide = _latest_subjects(log, clause, subject, since, _WIDE_JOB)
            return sum(self._only_here(job, clause, subject, since) for job in wide)
        return _count_matching(log, clause, subject, since)

    def expiries(self, clause: CountCondition, subject: CountSubject, now: float) -> Iterator[float]:
        """Yield when (UTC s) occurrences that may count now leave the window, the first of each log among them."""
        since, of_node = now - clause.within_s - ROUNDING_S, self._by_node.get(subject.node)
        if clause.scope is Scope.CLUSTER:
            logs = [self._everywhere]
        elif clause.scope is Scope.JOB:
            logs = [self._by_job[job] for job in subject.jobs if job in self._by_job]
        else:
            logs = [of_node] if of_node is not None else []
            if clause.distinct is Distinct.JOBS:  # what their other nodes had counts too
                seen = [o for log in logs for o in _recent_occurrences(log, clause, subject, since)]
                logs += [self._by_job[job] for job in {job for o in seen for job in o.jobs} if job in self._by_job]
        for log in logs:
            times = [o.at for o in _recent_occurrences(log, clause, subject, since)]
            if clause.distinct in (Distinct.NODES, Distinct.JOBS, Distinct.ALL_JOBS):  # kept longer than occurrences
                latest = (latest for kind in _matching_kinds(log, clause, subject) for latest in log.kinds[kind].latest)
                times += [at for each in latest for at in each.values() if at > since]
            if times:
                yield min(times) + clause.within_s

    def recent_times(self, job: str, kind: str, since: float) -> list[float]:
        """Return when exactly this kind happened on nodes of a job after `since`, newest first."""
        log = self._by_job.get(job)
        kept = log.kinds.get(kind) if log is not None else None
        return [] if kept is None else [o.at for o in takewhile(lambda o: o.at > since, reversed(kept.all))]

    def times(self, job: str, kind: str, since: float) -> int:
        """Return how often exactly this kind happened on nodes of a job after `since`, drills included."""
        log = self._by_job.get(job)
        kept = log.kinds.get(kind) if log is not None else None
        if kept is None:
            return 0
        return sum(o.count for o in takewhile(lambda o: o.at > since, reversed(kept.all)))

    def nodes_of(self, job: str, kind: str, since: float) -> set[str]:
        """Return the nodes of a job on which exactly this kind happened after `since`, without drills."""
        log = self._by_job.get(job)
        kept = log.kinds.get(kind) if log is not None else None
        return set() if kept is None else {node for node, at in kept.latest[_NODE].items() if at > since}

    def last(self, node: str, kind: str) -> Occurrence | None:
        """Return the newest of this kind on a node, or on the subject of an incident."""
        log = self._by_node.get(node)
        kept = log.kinds.get(kind) if log is not None else None
        return kept.all[-1] if kept is not None and kept.all else None

    def incidents(self, job: str, kind: str, since: float) -> set[str]:
        """Return the incidents for which exactly this kind happened on nodes of a job after `since`."""
        log = self._by_job.get(job)
        kept = log.kinds.get(kind) if log is not None else None
        if kept is None:
            return set()
        return {o.incident for o in takewhile(lambda o: o.at > since, reversed(kept.all))}

    def _only_here(self, job: str, clause: CountCondition, subject: CountSubject, since: float) -> bool:
        return _latest_subjects(self._by_job[job], clause, subject, since, _NODE) == {subject.node}


_NODE, _JOB, _WIDE_JOB = range(3)


class _KindOccurrences:
    """Occurrences of one kind, oldest first, and the last time per node and job, which is enough for most counts.

    Drills are only in the former.
    """

    def __init__(self) -> None:
        self.all: deque[Occurrence] = deque()
        self.latest: tuple[dict[str, float], dict[str, float], dict[str, float]] = ({}, {}, {})

    def add(self, occurrence: Occurrence, kept_max: int) -> None:
        if not self.all or self.all[-1].at <= occurrence.at:
            self.all.append(occurrence)
        else:  # a late report
            self.all.insert(bisect_right(self.all, occurrence.at, key=lambda o: o.at), occurrence)
        if len(self.all) > kept_max:
            self.all.popleft()
        if occurrence.injected:
            return
        _note_latest_time(self.latest[_NODE], occurrence.node, occurrence.at)
        for job in occurrence.jobs:
            _note_latest_time(self.latest[_JOB], job, occurrence.at)
            if occurrence.job_nodes > 1:
                _note_latest_time(self.latest[_WIDE_JOB], job, occurrence.at)

    def trim(self, since: float) -> None:
        while self.all and self.all[0].at < since:
            self.all.popleft()
        for latest in self.latest:
            for key in [key for key, at in latest.items() if at < since]:
                del latest[key]


def _note_latest_time(latest: dict[str, float], key: str, at: float) -> None:
    latest[key] = max(at, latest.get(key, at))


class _OccurrenceLog:
    """The occurrences kept, by kind."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self.kinds: dict[str, _KindOccurrences] = {}
        self._matching: dict[tuple[str, ...], list[str]] = {}  # rules use the same few patterns repeatedly

    def add(self, occurrence: Occurrence) -> None:
        kept = self.kinds.get(occurrence.kind)
        if kept is None:
            kept = self.kinds[occurrence.kind] = _KindOccurrences()
            self._matching.clear()
        kept.add(occurrence, self._kept_max)

    def matching(self, patterns: tuple[str, ...]) -> list[str]:
        """Return the kinds that match one of the patterns."""
        found = self._matching.get(patterns)
        if found is None:
            found = [kind for kind in self.kinds if any(fnmatchcase(kind, pattern) for pattern in patterns)]
            self._matching[patterns] = found
        return found

    def trim(self, since: float) -> bool:
        """Drop older ones. Returns whether nothing is left."""
        for kind, kept in list(self.kinds.items()):
            kept.trim(since)
            if not kept.all:
                del self.kinds[kind]
                self._matching.clear()
        return not self.kinds


def _count_matching(log: _OccurrenceLog, clause: CountCondition, subject: CountSubject, since: float) -> int:
    component = subject.component if clause.scope is Scope.COMPONENT else None
    if clause.distinct is Distinct.NODES and component is None:
        return len(_latest_subjects(log, clause, subject, since, _NODE))
    if clause.distinct in (Distinct.JOBS, Distinct.ALL_JOBS) and component is None:
        return len(_latest_subjects(log, clause, subject, since, _JOB))
    found = [
        o for o in _recent_occurrences(log, clause, subject, since) if component is None or o.component == component
    ]
    if clause.distinct is Distinct.EVENTS:
        return sum(o.count for o in found)
    if clause.distinct is Distinct.COMPONENTS:
        return len({(o.node, o.component) for o in found})
    if clause.distinct is Distinct.INCIDENTS:
        return len({o.incident for o in found})
    if clause.distinct is Distinct.NODES:
        return len({o.node for o in found})
    return len({job for o in found for job in o.jobs})


def _latest_subjects(
    log: _OccurrenceLog, clause: CountCondition, subject: CountSubject, since: float, what: int
) -> set[str]:
    """Return the nodes or jobs that had it within the window.

    Findings belong to no incident, so none of them is left out.
    """
    if subject.injected or clause.of:  # drills count, or actions may, of which the incident's own do not
        found = list(_recent_occurrences(log, clause, subject, since))
        if what == _NODE:
            return {o.node for o in found}
        return {job for o in found if what == _JOB or o.job_nodes > 1 for job in o.jobs}
    kept = log.kinds.get(subject.kind)
    return set() if kept is None else {key for key, at in kept.latest[what].items() if at > since}


def _recent_occurrences(
    log: _OccurrenceLog, clause: CountCondition, subject: CountSubject, since: float
) -> Iterator[Occurrence]:
    """Yield matching occurrences, newest first, back to the start of the window."""
    for kind in _matching_kinds(log, clause, subject):
        for occurrence in reversed(log.kinds[kind].all):
            if occurrence.at <= since:
                break
            own = occurrence.incident and occurrence.incident == subject.incident
            if not own and (subject.injected or not occurrence.injected):
                yield occurrence


def _matching_kinds(log: _OccurrenceLog, clause: CountCondition, subject: CountSubject) -> Iterable[str]:
    if not clause.of:
        return (subject.kind,) if subject.kind in log.kinds else ()
    return log.matching(clause.of)

"""Which open incidents the clock need not review: what their last review read has not changed, and no time has come.

A review that changed nothing changes nothing again until a record that it read changes, or until a time that it
compared with the clock. It then rests. A review that decided again, with the same result, also leaves it decided: that
outlasts reviews by the clock, which leave most decisions alone. This is a cache: an incident without an entry is
reviewed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from remediator.model.journal_records import Incident, NodeRecord
from remediator.model.node_location import NodeLocation
from remediator.model.occurrence import Occurrence
from remediator.model.rule_conditions import NodeState
from remediator.state.node_index import is_in_cluster

ISOLATION = "isolation"  # held nodes, the limits' base, locations, group incidents, plans on held nodes
SPARES = "spares"  # which nodes are free, and how many are draining
HISTORY = "history"  # every occurrence
ANYWAY_S = 60.0  # limits how long a time or topic that a review failed to name delays a decision
EARLY_S = 0.001  # times are compared with that tolerance: sums of floats are rounded


def job_topic(job: str) -> str:
    """Return the topic of the occurrences on nodes of a job."""
    return f"job:{job}"


def _counted(node: NodeRecord) -> tuple[bool, NodeLocation, bool]:
    return node.held, node.places, is_in_cluster(node)


class _Rest(NamedTuple):
    since: float
    until: float
    topics: tuple[str, ...]
    versions: int  # of the topics, summed: each only grows


class IncidentReviews:
    """Follows what changes, by incident and by shared topic."""

    def __init__(self) -> None:
        self.changes = 0  # of any kind so far: a review that raises it must not rest
        self._resting: dict[str, _Rest] = {}
        self._decided: dict[str, _Rest] = {}
        self._versions: Counter[str] = Counter()
        self._settings: object = None
        self._free = 0

    def touch(self, incident_id: str) -> None:
        """A record of this incident or its node has changed."""
        self.changes += 1
        self._resting.pop(incident_id, None)
        self._decided.pop(incident_id, None)

    def change(self, topic: str) -> None:
        """Something that many incidents may have read has changed."""
        self.changes += 1
        self._versions[topic] += 1

    def follow_node(self, incident_id: str, before: NodeRecord | None, node: NodeRecord) -> None:
        """A node's record has changed, and with it perhaps what limits count."""
        self.touch(incident_id)
        if before is None or _counted(before) != _counted(node):
            self.change(ISOLATION)
        if (node.state is NodeState.DRAINING) != (before is not None and before.state is NodeState.DRAINING):
            self.change(SPARES)

    def follow_free_nodes(self, count: int) -> None:
        """At most one node has become free, or is free no longer, since the last call."""
        if count != self._free:
            self._free = count
            self.change(SPARES)

    def follow_incident(self, before: Incident | None, incident: Incident, *, held: bool) -> None:
        """An incident has changed. Group incidents and plans on held nodes block others."""
        self.touch(incident.id)
        changed = before is None or (before.state, before.rule) != (incident.state, incident.rule)
        if changed and (incident.wide or held):
            self.change(ISOLATION)

    def follow_occurrence(self, occurrence: Occurrence, *, in_budget: bool) -> None:
        """Something was added to the history that rules count, and to what limits count if it is `in_budget`."""
        for topic in (HISTORY, *map(job_topic, occurrence.jobs), *((ISOLATION,) if in_budget else ())):
            self.change(topic)

    def use_settings(self, settings: object) -> None:
        """Wake all incidents if the settings differ from those of the last review."""
        if settings != self._settings:
            self.wake_all()
            self._settings = settings

    def wake_all(self) -> None:
        """Let the next pass review every incident."""
        self._resting.clear()
        self._decided.clear()

    def rest(self, incident_id: str, now: float, times: Iterable[float], topics: Iterable[str]) -> None:
        """Let an incident rest until a topic changes or one of these times (UTC s) comes; times before now have passed."""
        self._resting[incident_id] = self._entry(now, times, topics)

    def keep_decision(self, incident_id: str, now: float, times: Iterable[float], topics: Iterable[str]) -> None:
        """Record that a new decision would be the same until a topic changes or a time comes, as in `rest`."""
        self._decided[incident_id] = self._entry(now, times, topics)

    def is_resting(self, incident_id: str, now: float) -> bool:
        """Return whether a review now would change nothing. After a step back of the clock, none rests."""
        return self._is_current(self._resting.get(incident_id), now)

    def is_decided(self, incident_id: str, now: float) -> bool:
        """Return whether a new decision now would be the same."""
        return self._is_current(self._decided.get(incident_id), now)

    def _entry(self, now: float, times: Iterable[float], topics: Iterable[str]) -> _Rest:
        until = min((at - EARLY_S for at in times if at >= now - EARLY_S), default=float("inf"))
        known = tuple(topics)
        return _Rest(now, min(until, now + ANYWAY_S), known, self._sum(known))

    def _is_current(self, rest: _Rest | None, now: float) -> bool:
        return rest is not None and rest.since <= now < rest.until and rest.versions == self._sum(rest.topics)

    def _sum(self, topics: tuple[str, ...]) -> int:
        return sum(self._versions[topic] for topic in topics)

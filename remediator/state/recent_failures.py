"""Recent failures that decisions use without a rule: which nodes became suspect where, and failures in a row.

Both are functions of occurrences, which are stored rows, so a restart loses nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from remediator.model.journal_records import BUILT_IN, EXPLAINING, Action, ActionState, Incident
from remediator.model.occurrence import Occurrence
from remediator.model.plan_steps import Verb

SUSPECTED = "node/suspected"  # a rule first asked to isolate this node for this incident
DRILLED = "node/drilled"  # an injected fault caused that, whatever else the incident holds
CAUSE_OVER = "cause/over"  # a common-cause incident was closed: its suspects cause no other
JOB_OVER = "job/over"  # an incident about a job's own fault was closed, which says nothing about nodes
ACTION_FAILED, ACTION_DONE, RESET = "deed/failed", "deed/done", "breaker/reset"
REMEMBERED_S = 86400.0
_COUNTED_VERBS = frozenset({Verb.CORDON.value, "resume", Verb.RESET_GPU.value, Verb.REBOOT.value, Verb.EXEC.value})
_SAYS = frozenset({ActionState.SUCCEEDED, ActionState.FAILED, ActionState.EXPIRED})
EVERYWHERE = ""  # the location of all suspects
STORM = "cluster:failures"  # an incident above overlapping causes: it covers every location


class _LocationSuspects:
    """Nodes by when they last became suspect at one location; counting takes constant time."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}  # newest last
        self._times: list[float] = []

    def take(self, node: str, at: float) -> None:
        before = self.last.get(node)
        if before is not None and before >= at:
            return
        self.drop(node)
        self.last[node] = at
        insort(self._times, at)

    def drop(self, node: str) -> None:
        at = self.last.pop(node, None)
        if at is not None:
            del self._times[bisect_left(self._times, at)]

    def count(self, since: float) -> int:
        return len(self._times) - bisect_right(self._times, since)

    def times(self, since: float) -> list[float]:
        """Return the first and last time after `since`, if any."""
        first = bisect_right(self._times, since)
        return [self._times[first], self._times[-1]] if first < len(self._times) else []


class SuspectIndex:
    """Which nodes became suspect at which location, and when last.

    A drill counts real faults; a real fault ignores drills.
    """

    def __init__(self) -> None:
        self._real: dict[str, _LocationSuspects] = {}
        self._drills: dict[str, _LocationSuspects] = {}

    def take(self, occurrence: Occurrence, places: Iterable[str]) -> None:
        """Add a suspect, at the locations its node shares with others."""
        seen = self._drills if occurrence.injected else self._real
        for place in (EVERYWHERE, *places, *(f"job:{job}" for job in occurrence.jobs)):
            seen.setdefault(place, _LocationSuspects()).take(occurrence.node, occurrence.at)

    def over(self, place: str, *, drill: bool) -> None:
        """Drop the suspects at a location so far: they were handled, or the drill ended."""
        for seen in (self._drills,) if drill else (self._drills, self._real):
            for over in [*seen] if place == STORM else [place]:
                if over != EVERYWHERE:
                    seen.pop(over, None)

    def at(self, place: str, since: float, *, drills: bool) -> set[str]:
        """Return the nodes that became suspect there after `since`."""
        return {node for seen in self._of(place, drills=drills) for node, at in seen.last.items() if at > since}

    def count(self, place: str, since: float, *, drills: bool) -> int:
        """Return how many nodes `at` would return."""
        found = self._of(place, drills=drills)
        return len(self.at(place, since, drills=drills)) if len(found) > 1 else sum(seen.count(since) for seen in found)

    def count_of(self, place: str, nodes: Iterable[str], since: float, *, drills: bool) -> int:
        """Return how many of these nodes `at` would return."""
        found = [seen.last for seen in self._of(place, drills=drills)]
        return sum(any(last.get(node, since) > since for last in found) for node in nodes)

    def span_s(self, place: str, since: float, *, drills: bool) -> float:
        """Return the seconds from the first to the last node that became suspect there after `since`."""
        times = [at for seen in self._of(place, drills=drills) for at in seen.times(since)]
        return max(times) - min(times) if times else 0.0

    def others(self, place: str, node: str, since: float, *, drills: bool) -> bool:
        """Return whether another node became suspect there after `since`.

        Checks the newest first and rarely goes further.
        """
        return any(
            at > since and name != node
            for seen in self._of(place, drills=drills)
            for name, at in reversed(seen.last.items())
        )

    def forget(self, now: float) -> None:
        """Drop what is a day old."""
        for seen in (self._real, self._drills):
            for place, there in list(seen.items()):
                for node in [node for node, at in there.last.items() if now - at > REMEMBERED_S]:
                    there.drop(node)
                if not there.last:
                    del seen[place]

    def _of(self, place: str, *, drills: bool) -> list[_LocationSuspects]:
        sources = (self._real, self._drills) if drills else (self._real,)
        return [seen[place] for seen in sources if place in seen]


def closed_group_kind(incident: Incident) -> str:
    """Return the occurrence kind of a closed group incident."""
    shared = incident.policy == BUILT_IN or incident.rule in EXPLAINING
    return CAUSE_OVER if shared else JOB_OVER


class FailureStreak:
    """Per verb, the incidents whose actions failed in a row, with no success in between."""

    def __init__(self) -> None:
        self.failed: dict[str, dict[str, str]] = {}  # verb → incident → node: one bad node alone says nothing about us

    def said_by(self, action: Action) -> Occurrence | None:
        """Return what the end of an action says about the controller, if anything.

        A failing trainer or test says nothing.
        """
        if action.verb not in _COUNTED_VERBS or action.state not in _SAYS:
            return None
        done = action.state is ActionState.SUCCEEDED
        if done and action.verb not in self.failed:
            return None
        kind, at = ACTION_DONE if done else ACTION_FAILED, action.finished_at or 0.0
        return Occurrence(at, kind, action.node, action.verb, incident=action.incident)

    def take(self, occurrence: Occurrence) -> None:
        """Count the end of an action (its component is the verb), or an operator's reset of the breaker."""
        if occurrence.kind == ACTION_FAILED:
            self.failed.setdefault(occurrence.component, {})[occurrence.incident] = occurrence.node
        elif occurrence.kind == ACTION_DONE:
            self.failed.pop(occurrence.component, None)
        elif occurrence.kind == RESET:
            self.failed.clear()

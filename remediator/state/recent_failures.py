"""What of the last minutes and hours decisions ask for without a rule: who became suspect where, and what failed in a row.

Both are functions of occurrences, which are rows, so a restart forgets nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from remediator.model.journal_records import BUILT_IN, EXPLAINING, Action, ActionState, Incident
from remediator.model.occurrence import Occurrence
from remediator.model.plan_steps import Verb

SUSPECTED = "node/suspected"  # a rule asked for the first time to take this node out for this incident
DRILLED = "node/drilled"  # what asked for that was an injected fault, whatever else the incident holds
CAUSE_OVER = "cause/over"  # an incident about a shared cause was closed: what led to it leads to no other
JOB_OVER = "job/over"  # one about a job's own fault was closed, which says nothing of broken nodes
DEED_FAILED, DEED_DONE, RESET = "deed/failed", "deed/done", "breaker/reset"
REMEMBERED_S = 86400.0
_DEEDS = frozenset({Verb.CORDON.value, "resume", Verb.RESET_GPU.value, Verb.REBOOT.value, Verb.EXEC.value})
_SAYS = frozenset({ActionState.SUCCEEDED, ActionState.FAILED, ActionState.EXPIRED})
EVERYWHERE = ""  # the place of all suspects
STORM = "cluster:failures"  # an incident above causes that overlap: it is about every place


class _LocationSuspects:
    """Nodes by when they became suspect at one place last, counted in no time however many they are."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}  # the newest at the end
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
        """The first and the last time after `since`, if there are any."""
        first = bisect_right(self._times, since)
        return [self._times[first], self._times[-1]] if first < len(self._times) else []


class SuspectIndex:
    """Which nodes became suspect at which place, and when last. A drill sees real faults; a real fault sees no drill."""

    def __init__(self) -> None:
        self._real: dict[str, _LocationSuspects] = {}
        self._drills: dict[str, _LocationSuspects] = {}

    def take(self, occurrence: Occurrence, places: Iterable[str]) -> None:
        """One more suspect, at the places its node shares with others."""
        seen = self._drills if occurrence.injected else self._real
        for place in (EVERYWHERE, *places, *(f"job:{job}" for job in occurrence.jobs)):
            seen.setdefault(place, _LocationSuspects()).take(occurrence.node, occurrence.at)

    def over(self, place: str, *, drill: bool) -> None:
        """What was seen there so far was looked at, or it was a drill, which is over."""
        for seen in (self._drills,) if drill else (self._drills, self._real):
            for over in [*seen] if place == STORM else [place]:
                if over != EVERYWHERE:
                    seen.pop(over, None)

    def at(self, place: str, since: float, *, drills: bool) -> set[str]:
        """Nodes that became suspect there after `since`."""
        return {node for seen in self._of(place, drills=drills) for node, at in seen.last.items() if at > since}

    def count(self, place: str, since: float, *, drills: bool) -> int:
        """How many nodes `at` would name."""
        found = self._of(place, drills=drills)
        return len(self.at(place, since, drills=drills)) if len(found) > 1 else sum(seen.count(since) for seen in found)

    def count_of(self, place: str, nodes: Iterable[str], since: float, *, drills: bool) -> int:
        """How many of these nodes `at` would name."""
        found = [seen.last for seen in self._of(place, drills=drills)]
        return sum(any(last.get(node, since) > since for last in found) for node in nodes)

    def span_s(self, place: str, since: float, *, drills: bool) -> float:
        """From the first that became suspect there after `since` to the last."""
        times = [at for seen in self._of(place, drills=drills) for at in seen.times(since)]
        return max(times) - min(times) if times else 0.0

    def others(self, place: str, node: str, since: float, *, drills: bool) -> bool:
        """Whether another node became suspect there after `since`; looks at the newest first, and mostly no further."""
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
    """What it is, for counting, that an incident about more than one node was closed."""
    shared = incident.policy == BUILT_IN or incident.rule in EXPLAINING
    return CAUSE_OVER if shared else JOB_OVER


class FailureStreak:
    """Per verb, the incidents whose deeds failed one after another, with none done in between."""

    def __init__(self) -> None:
        self.failed: dict[str, dict[str, str]] = {}  # verb → incident → node: one bad node alone says nothing about us

    def said_by(self, action: Action) -> Occurrence | None:
        """What the end of an action says of us, if anything; of a trainer or a test that fails it does not."""
        if action.verb not in _DEEDS or action.state not in _SAYS:
            return None
        done = action.state is ActionState.SUCCEEDED
        if done and action.verb not in self.failed:
            return None
        kind, at = DEED_DONE if done else DEED_FAILED, action.finished_at or 0.0
        return Occurrence(at, kind, action.node, action.verb, incident=action.incident)

    def take(self, occurrence: Occurrence) -> None:
        """A deed ended (its verb stands as component), or a person reset the breaker."""
        if occurrence.kind == DEED_FAILED:
            self.failed.setdefault(occurrence.component, {})[occurrence.incident] = occurrence.node
        elif occurrence.kind == DEED_DONE:
            self.failed.pop(occurrence.component, None)
        elif occurrence.kind == RESET:
            self.failed.clear()

"""What of the last minutes and hours decisions ask for without a rule: who became suspect where, and what failed in a row.

Both are functions of occurrences, which are rows, so a restart forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from remediator.model.occurrence import Occurrence

SUSPECTED = "node/suspected"  # a rule asked for the first time to take this node out for this incident
DEED_FAILED, DEED_DONE, RESET = "deed/failed", "deed/done", "breaker/reset"
REMEMBERED_S = 86400.0


class Suspects:
    """Which nodes became suspect at which place, and when last."""

    def __init__(self) -> None:
        self._at: dict[str, dict[tuple[str, bool], float]] = {}  # place → node, drill → when

    def take(self, occurrence: Occurrence, places: Iterable[str]) -> None:
        """One more suspect, at the places its node shares with others."""
        key = (occurrence.node, occurrence.injected)
        for place in (*places, *(f"job:{job}" for job in occurrence.jobs)):
            seen = self._at.setdefault(place, {})
            seen[key] = max(occurrence.at, seen.get(key, occurrence.at))

    def at(self, place: str, since: float, *, drills: bool) -> dict[str, float]:
        """Nodes that became suspect there after `since`. A drill sees real faults; a real fault sees no drill."""
        found: dict[str, float] = {}
        for (node, drill), at in self._at.get(place, {}).items():
            if at > since and (drills or not drill):
                found[node] = max(at, found.get(node, at))
        return found

    def others(self, place: str, node: str, since: float, *, drills: bool) -> bool:
        """Whether another node became suspect there after `since`; looks at the newest first, and mostly no further."""
        seen = self._at.get(place, {})
        return any(
            at > since and name != node and (drills or not drill) for (name, drill), at in reversed(seen.items())
        )

    def forget(self, now: float) -> None:
        """Drop what is a day old."""
        for place, seen in list(self._at.items()):
            for key in [key for key, at in seen.items() if now - at > REMEMBERED_S]:
                del seen[key]
            if not seen:
                del self._at[place]


class Streak:
    """Per verb, the incidents whose deeds failed one after another, with none done in between."""

    def __init__(self) -> None:
        self.failed: dict[str, dict[str, str]] = {}  # verb → incident → node: one bad node alone says nothing about us

    def take(self, occurrence: Occurrence) -> None:
        """A deed ended (its verb stands as component), or a person reset the breaker."""
        if occurrence.kind == DEED_FAILED:
            self.failed.setdefault(occurrence.component, {})[occurrence.incident] = occurrence.node
        elif occurrence.kind == DEED_DONE:
            self.failed.pop(occurrence.component, None)
        elif occurrence.kind == RESET:
            self.failed.clear()

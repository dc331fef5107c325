"""Counts each event since this process started: for metrics, which must outlive the findings. Pure."""

from __future__ import annotations

import msgspec

from healthd.findings.facts import Raise
from vocabulary.identity import Component, ComponentKind

COUNTED_MAX = 4096  # 16 GPUs with every known code, three times


class EventCount(msgspec.Struct, frozen=True):
    """One kind of event of one component. `last_seen` is UTC seconds."""

    check: str
    code: str
    component: Component
    injected: bool
    count: int
    last_seen: float


class EventCounters:
    """Bounded: what exceeds the limit is counted under one name, so that the sum stays right."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, bool], EventCount] = {}
        self._rows: tuple[EventCount, ...] | None = ()

    @property
    def rows(self) -> tuple[EventCount, ...]:
        """Return all counts; the same tuple until something is counted."""
        if self._rows is None:
            self._rows = tuple(self._counts.values())
        return self._rows

    def add(self, fact: Raise) -> None:
        """Count an event."""
        check, code, component = fact.check, fact.code, fact.component
        key = (check, code, component.pci or component.key, fact.injected)
        if key not in self._counts and len(self._counts) >= COUNTED_MAX:
            code, component = "other", Component(ComponentKind.HOST)
            key = (check, code, component.key, fact.injected)
        known = self._counts.get(key)
        count = known.count + 1 if known else 1
        self._counts[key] = EventCount(check, code, component, fact.injected, count, fact.at)
        self._rows = None

"""Severity of NVSwitch errors: the head line of an SXid states it, the data lines behind it do not. Pure."""

from __future__ import annotations

from vocabulary.finding import Severity

SAME_EVENT_S = 2.0
KEPT_MAX = 64


class SwitchSeverityTracker:
    """Remembers the last severity of each switch and code, for the lines that follow it."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int | None], tuple[float, Severity]] = {}

    def severity(self, switch: str, code: int | None, said: Severity | None, at: float) -> Severity | None:
        """Return the severity from this line or the head line just before; None if neither has one."""
        if said is None:
            before = self._said.get((switch, code))
            return before[1] if before is not None and abs(at - before[0]) <= SAME_EVENT_S else None
        self._said.pop((switch, code), None)
        self._said[switch, code] = (at, said)
        if len(self._said) > KEPT_MAX:
            del self._said[next(iter(self._said))]
        return said

"""An NVSwitch says in the head line of an SXid how bad it is; the data lines behind it carry no word. Pure."""

from __future__ import annotations

from vocabulary.finding import Severity

SAME_EVENT_S = 2.0
KEPT_MAX = 64


class SwitchSeverityTracker:
    """Remembers the last word of each switch and code, for the lines that follow it."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int | None], tuple[float, Severity]] = {}

    def severity(self, switch: str, code: int | None, said: Severity | None, at: float) -> Severity | None:
        """How bad the switch called it: in this line, or in the head line just before; None if in neither."""
        if said is None:
            before = self._said.get((switch, code))
            return before[1] if before is not None and abs(at - before[0]) <= SAME_EVENT_S else None
        self._said.pop((switch, code), None)
        self._said[switch, code] = (at, said)
        if len(self._said) > KEPT_MAX:
            del self._said[next(iter(self._said))]
        return said

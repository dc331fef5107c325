"""The last preflight of each level on this node, ordered or reported, and counts of results.

For the exporter; in memory only.
"""

from __future__ import annotations

import threading
from collections import Counter

import msgspec

from healthd.samples.preflight import LEVELS, VERDICTS, PreflightSample
from vocabulary.order import OrderState, OrderUpdate

FIGURE = "figure "  # prefix of a figure in an order's result; its name, unit and setting follow
FIGURES_MAX = 40
_OTHER = "other"


class PreflightFigure(msgspec.Struct, frozen=True):
    """The worst value among the node's devices."""

    name: str
    unit: str
    setting: str
    value: float


class LastPreflight(msgspec.Struct, frozen=True):
    """`at` is UTC seconds, `seconds` the duration; None if not reported. Only ordered preflights have figures."""

    level: str
    verdict: str
    at: float
    seconds: float | None = None
    figures: tuple[PreflightFigure, ...] = ()


class PreflightSummary(msgspec.Struct, frozen=True):
    """`ended` counts by level, verdict and origin: ``order`` or ``told``."""

    last: tuple[LastPreflight, ...] = ()
    ended: tuple[tuple[str, str, str, int], ...] = ()


class PreflightHistory:
    """The history. Callable from any thread; `seen` is replaced as a whole."""

    def __init__(self) -> None:
        self.seen = PreflightSummary()
        self._lock = threading.Lock()
        self._last: dict[str, LastPreflight] = {}
        self._ended: Counter[tuple[str, str, str]] = Counter()

    def told(self, sample: PreflightSample, now: float) -> None:
        """Record a preflight that no order started."""
        seconds = max(0.0, now - sample.started_at) if sample.started_at else None
        self._take(LastPreflight(sample.level, sample.verdict, now, seconds), "told")

    def answered(self, level: str, update: OrderUpdate) -> None:
        """Record the end of an ordered preflight."""
        word = update.data.get("verdict", "")
        passed = update.state is OrderState.SUCCEEDED
        # A pass that does not qualify (partial tests, an injected fault) does not count as a pass here either.
        verdict = "pass" if passed else word if word in VERDICTS and word != "pass" else "inconclusive"
        seconds = update.data.get("seconds")
        took = float(seconds) if isinstance(seconds, int | float) else None
        figures = tuple(_parse_figure(name, value) for name, value in update.data.items() if name.startswith(FIGURE))
        known = level if level in LEVELS else _OTHER
        self._take(LastPreflight(known, str(verdict), update.at, took, figures[:FIGURES_MAX]), "order")

    def _take(self, last: LastPreflight, by: str) -> None:
        with self._lock:
            self._last[last.level] = last
            self._ended[last.level, last.verdict, by] += 1
            ended = tuple((*key, count) for key, count in sorted(self._ended.items()))
            self.seen = PreflightSummary(tuple(self._last[level] for level in sorted(self._last)), ended)


def _parse_figure(name: str, value: object) -> PreflightFigure:
    what, unit, *setting = [*name.removeprefix(FIGURE).split(" ", 2), ""][:3]
    return PreflightFigure(
        what, unit, " ".join(setting), float(value) if isinstance(value, int | float) else float("nan")
    )

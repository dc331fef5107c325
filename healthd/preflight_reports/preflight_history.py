"""The last preflight of each level on this node, ordered or told of, and how many ended how. For the exporter; in memory only."""

from __future__ import annotations

import threading
from collections import Counter

import msgspec

from healthd.samples.preflight import LEVELS, VERDICTS, PreflightSample
from vocabulary.order import OrderState, OrderUpdate

FIGURE = "figure "  # begins the name of a figure in the answer to an order: its name, unit and setting follow
FIGURES_MAX = 40
_OTHER = "other"


class PreflightFigure(msgspec.Struct, frozen=True):
    """The worst of the node's devices."""

    name: str
    unit: str
    setting: str
    value: float


class LastPreflight(msgspec.Struct, frozen=True):
    """`at` is UTC seconds, `seconds` how long it took; None: not told. Figures only of ordered ones."""

    level: str
    verdict: str
    at: float
    seconds: float | None = None
    figures: tuple[PreflightFigure, ...] = ()


class PreflightSummary(msgspec.Struct, frozen=True):
    """`ended` counts by level, verdict and who asked: ``order`` or ``told``."""

    last: tuple[LastPreflight, ...] = ()
    ended: tuple[tuple[str, str, str, int], ...] = ()


class PreflightHistory:
    """Callable from any thread; `seen` is replaced whole."""

    def __init__(self) -> None:
        self.seen = PreflightSummary()
        self._lock = threading.Lock()
        self._last: dict[str, LastPreflight] = {}
        self._ended: Counter[tuple[str, str, str]] = Counter()

    def told(self, sample: PreflightSample, now: float) -> None:
        """One that nobody ordered."""
        seconds = max(0.0, now - sample.started_at) if sample.started_at else None
        self._take(LastPreflight(sample.level, sample.verdict, now, seconds), "told")

    def answered(self, level: str, update: OrderUpdate) -> None:
        """One that was ordered has ended."""
        word = update.data.get("verdict", "")
        passed = update.state is OrderState.SUCCEEDED
        # A pass that counts for none (a part of the tests, an injected fault) is none here either.
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

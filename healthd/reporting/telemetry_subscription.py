"""Whether a person looks at this node now: the centre's wish to be told telemetry, until it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from vocabulary.clock import Clock
from vocabulary.messages.telemetry_messages import WISH_S_MAX, TelemetryPart, TelemetryWish
from vocabulary.messages.wire import encode_message

REPORTS_APART_S = 5.0  # while somebody looks

_log = logging.getLogger("healthd.uplink")

Told = msgspec.Raw | msgspec.UnsetType


class TelemetrySubscription:
    """The wish that was heard last. `part` makes what a report carries of so many seconds. For any thread."""

    def __init__(self, part: Callable[[float], TelemetryPart], clock: Clock) -> None:
        self._part = part
        self._clock = clock
        self._lock = threading.Lock()
        self._wish: TelemetryWish | None = None
        self._heard_at = 0.0  # monotonic

    def take(self, wish: TelemetryWish) -> None:
        """The centre asks."""
        with self._lock:
            self._wish, self._heard_at = wish, self._clock.monotonic()

    def end(self) -> None:
        """Nobody looks any more."""
        with self._lock:
            self._wish = None

    def settle(self, told: Told, wish: TelemetryWish | None) -> None:
        """The centre took a report that carried `told`, and answered with `wish`.

        Without one it has ended, unless the report carried nothing: then its answer may be older than the wish.
        """
        if wish is not None:
            self.take(wish)
        elif told is not msgspec.UNSET:
            self.end()

    def interval_s(self, usual_s: float) -> float:
        """How long to wait until the next report."""
        return usual_s if self._standing() is None else min(usual_s, REPORTS_APART_S)

    def told(self) -> Told:
        """What a report made now carries."""
        back_s = self._standing()
        if back_s is None:
            return msgspec.UNSET
        try:
            return msgspec.Raw(encode_message(self._part(back_s)))
        except Exception:  # noqa: BLE001 - a mistake of ours in what is only looked at must keep no report from going
            _log.exception("no telemetry is told; please report this")
            self.end()
            return msgspec.UNSET

    def _standing(self) -> float | None:
        """How many seconds back the wish goes by now; None: there is none."""
        with self._lock:
            if self._wish is None:
                return None
            age_s = self._clock.monotonic() - self._heard_at
            if age_s >= min(self._wish.lasts_s, WISH_S_MAX):
                self._wish = None
                return None
            return self._wish.back_s + age_s

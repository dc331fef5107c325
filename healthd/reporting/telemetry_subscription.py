"""The controller's request for telemetry while a person views this node, until it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from vocabulary.clock import Clock
from vocabulary.messages.telemetry_messages import REQUEST_S_MAX, TelemetryPart, TelemetryRequest
from vocabulary.messages.wire import encode_message

REPORTS_APART_S = 5.0  # while someone is viewing

_log = logging.getLogger("healthd.uplink")

Told = msgspec.Raw | msgspec.UnsetType


class TelemetrySubscription:
    """The last telemetry request. `part` builds the telemetry of that many seconds. Thread-safe."""

    def __init__(self, part: Callable[[float], TelemetryPart], clock: Clock) -> None:
        self._part = part
        self._clock = clock
        self._lock = threading.Lock()
        self._request: TelemetryRequest | None = None
        self._heard_at = 0.0  # monotonic

    def take(self, request: TelemetryRequest) -> None:
        """Accept a request from the controller."""
        with self._lock:
            self._request, self._heard_at = request, self._clock.monotonic()

    def end(self) -> None:
        """End the subscription."""
        with self._lock:
            self._request = None

    def apply_reply(self, told: Told, request: TelemetryRequest | None) -> None:
        """Process the controller's answer `request` to a report that carried `told`.

        No request ends the subscription, unless the report carried no telemetry: then the answer may predate the request.
        """
        if request is not None:
            self.take(request)
        elif told is not msgspec.UNSET:
            self.end()

    def interval_s(self, usual_s: float) -> float:
        """Return the seconds until the next report."""
        return usual_s if self._covered_s() is None else min(usual_s, REPORTS_APART_S)

    def told(self) -> Told:
        """Return the telemetry for a report made now."""
        back_s = self._covered_s()
        if back_s is None:
            return msgspec.UNSET
        try:
            return msgspec.Raw(encode_message(self._part(back_s)))
        except Exception:  # noqa: BLE001 - a mistake of ours in what is only looked at must keep no report from going
            _log.exception("telemetry failed; please report this")
            self.end()
            return msgspec.UNSET

    def _covered_s(self) -> float | None:
        """Return how many seconds back the request reaches now; None if there is none."""
        with self._lock:
            if self._request is None:
                return None
            age_s = self._clock.monotonic() - self._heard_at
            if age_s >= min(self._request.lasts_s, REQUEST_S_MAX):
                self._request = None
                return None
            return self._request.back_s + age_s

"""Prometheus Alertmanager, API v2: alerts are repeated before they expire, and end when their incident does.

It identifies alerts by their labels (prometheus.io, "Alerts API"), so the labels of an alert never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

from remediator.model.delivery import Delivery, NotificationPhase
from remediator.notifications.delivery_pacing import RateLimit
from remediator.notifications.envelope import DeliveryAnswer, Envelope
from remediator.notifications.http_post import HttpPostRequest, send_http_post
from remediator.notifications.message_templates import default_title
from remediator.notifications.receiver import HttpReceiver
from remediator.notifications.secret_files import SecretError, read_secret
from remediator.notifications.timestamps import format_rfc3339

LIVES_REPEATS = 4  # repetitions that may be lost before an alert expires


class Alertmanager(HttpReceiver, frozen=True, kw_only=True, tag="alertmanager"):
    """`url` is the server's, without ``/api/v2``. It groups, mutes and routes by itself, so messages are sent at once."""

    REPEATS: ClassVar[bool] = True

    token_file: str = ""  # file with a bearer token
    group_s: float = 0.0
    rate: RateLimit = RateLimit(messages=10_000, per_s=60.0)
    quiet_hours: bool = False
    repeat_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0  # interval at which active alerts are repeated

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build all alerts of the batch."""
        return self._request(
            [
                self._alert(item, envelope.now, envelope.title if len(envelope.items) == 1 else default_title([item]))
                for item in envelope.items
            ]
        )

    def repeat(self, told: Iterable[Delivery], now: float) -> DeliveryAnswer:
        """Repeat active alerts. Idempotent."""
        return self._post([self._alert(item, now, default_title([item])) for item in told])

    def heartbeat(self, cluster: str, now: float, lives_s: float) -> DeliveryAnswer:
        """Build an alert that always fires: its absence means that the controller is down."""
        labels = {"alertname": "GpuHealthdHeartbeat", "cluster": cluster, "severity": "none"}
        words = {"summary": "always firing; if it is missing, the controller has stopped deciding"}
        return self._post([{"labels": labels, "annotations": words, "endsAt": format_rfc3339(now + lives_s)}])

    def _post(self, alerts: list[dict[str, Any]]) -> DeliveryAnswer:
        try:
            return send_http_post(self._request(alerts), self.timeout_s)
        except SecretError as error:
            return DeliveryAnswer(False, str(error), refused=True)

    def _request(self, alerts: list[dict[str, Any]]) -> HttpPostRequest:
        headers = {"authorization": f"Bearer {read_secret(self.token_file)}"} if self.token_file else {}
        return self.request(f"{self.address().rstrip('/')}/api/v2/alerts", alerts, headers)

    def _alert(self, item: Delivery, now: float, title: str) -> dict[str, Any]:
        message = item.message
        labels = {
            **{key: value for key, value in message.labels.items() if value},
            "alertname": "GpuHealthdTicket" if message.kind == "ticket" else "GpuHealthdIncident",
            "cluster": message.cluster,
            "node": message.node,
            "incident": message.incident,
            "rule": message.rule,
            "severity": message.severity.value,
            "drill": "true" if message.injected else "",
        }
        ends = now if item.phase is NotificationPhase.RESOLVE else now + LIVES_REPEATS * self.repeat_s
        made = {
            "labels": {key: value for key, value in labels.items() if value},
            "annotations": {"summary": title, "description": message.text or message.title},
            "startsAt": format_rfc3339(min(message.at, now)),
            "endsAt": format_rfc3339(ends),
        }
        return {**made, "generatorURL": message.link} if message.link else made

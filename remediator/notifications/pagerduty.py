"""PagerDuty, Events API v2: an alert is triggered, acknowledged and resolved under one `dedup_key`.

Fields and limits are those of PagerDuty's published schema (api-schema, events-v2): summary 1024 characters, key 255.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from remediator.model.delivery import NotificationPhase
from remediator.notifications.delivery_pacing import BatchingMode, RateLimit
from remediator.notifications.envelope import Envelope
from remediator.notifications.http_post import HttpPostRequest
from remediator.notifications.receiver import HttpReceiver, truncate_text
from remediator.notifications.secret_files import read_secret
from remediator.notifications.timestamps import format_rfc3339
from vocabulary.finding import Severity

SUMMARY_MAX, KEY_MAX, DETAILS_MAX = 1024, 255, 100
_ACTION = {
    NotificationPhase.FIRE: "trigger",
    NotificationPhase.ACKNOWLEDGE: "acknowledge",
    NotificationPhase.RESOLVE: "resolve",
}
_SEVERITY = {
    Severity.FATAL: "critical",
    Severity.ERROR: "error",
    Severity.UNCLASSIFIED: "warning",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}


class PagerDuty(HttpReceiver, frozen=True, kw_only=True, tag="pagerduty"):
    """A service's integration. `routing_key_file` holds its key; in the EU, `url` is events.eu.pagerduty.com's."""

    TOGETHER: ClassVar[BatchingMode] = BatchingMode.INCIDENT
    LIFE_CYCLE: ClassVar[bool] = True

    routing_key_file: str  # file with the integration's key
    url: str = "https://events.pagerduty.com/v2/enqueue"
    group_s: float = 0.0
    rate: RateLimit = RateLimit(messages=10, per_s=60.0)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build one event."""
        return self.request(self.address(), build_pagerduty_event(envelope, read_secret(self.routing_key_file)))


def build_pagerduty_event(envelope: Envelope, routing_key: str) -> dict[str, Any]:
    """Build the event; only a trigger has a payload."""
    made: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": _ACTION[envelope.phase],
        "dedup_key": envelope.thread[:KEY_MAX],
    }
    if envelope.phase is not NotificationPhase.FIRE:
        return made
    message = envelope.first
    made["payload"] = {
        "summary": truncate_text(envelope.title, SUMMARY_MAX),
        "source": message.node or message.cluster,
        "severity": _SEVERITY[envelope.severity],
        "timestamp": format_rfc3339(envelope.items[0].created_at),
        "component": "gpu-healthd",
        "group": message.cluster,
        "class": message.rule,
        "custom_details": {
            "text": envelope.text,
            "alerts": [msgspec.to_builtins(item.message) for item in envelope.items[:DETAILS_MAX]],
        },
    }
    made["client"] = f"gpu-healthd {message.cluster}"
    if message.link:
        made["client_url"] = message.link
        made["links"] = [{"href": message.link, "text": "View and acknowledge"}]
    return made

"""PagerDuty, Events API v2: a matter is triggered, acknowledged and resolved under one `dedup_key`.

Fields and limits are those of PagerDuty's published schema (api-schema, events-v2): summary 1024 characters, key 255.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from remediator.act.webhooks.envelope import Envelope
from remediator.act.webhooks.pace import Rate, Together
from remediator.act.webhooks.post import Request
from remediator.act.webhooks.receiver import HttpReceiver, cut
from remediator.act.webhooks.secret import read_one
from remediator.act.webhooks.times import rfc3339
from remediator.model.delivery import Phase
from vocabulary.finding import Severity

SUMMARY_MAX, KEY_MAX, DETAILS_MAX = 1024, 255, 100
_ACTION = {Phase.FIRE: "trigger", Phase.ACKNOWLEDGE: "acknowledge", Phase.RESOLVE: "resolve"}
_SEVERITY = {
    Severity.FATAL: "critical",
    Severity.ERROR: "error",
    Severity.UNCLASSIFIED: "warning",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}


class PagerDuty(HttpReceiver, frozen=True, kw_only=True, tag="pagerduty"):
    """A service's integration. `routing_key_file` holds its key; in the EU, `url` is events.eu.pagerduty.com's."""

    TOGETHER: ClassVar[Together] = Together.INCIDENT
    LIFE_CYCLE: ClassVar[bool] = True

    routing_key_file: str  # holds the integration's key
    url: str = "https://events.pagerduty.com/v2/enqueue"
    group_s: float = 0.0
    rate: Rate = Rate(messages=10, per_s=60.0)

    def compose(self, envelope: Envelope) -> Request:
        """One event."""
        return self.request(self.address(), event(envelope, read_one(self.routing_key_file)))


def event(envelope: Envelope, routing_key: str) -> dict[str, Any]:
    """The event; only a trigger says what is the matter."""
    made: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": _ACTION[envelope.phase],
        "dedup_key": envelope.thread[:KEY_MAX],
    }
    if envelope.phase is not Phase.FIRE:
        return made
    message = envelope.first
    made["payload"] = {
        "summary": cut(envelope.title, SUMMARY_MAX),
        "source": message.node or message.cluster,
        "severity": _SEVERITY[envelope.severity],
        "timestamp": rfc3339(envelope.items[0].created_at),
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
        made["links"] = [{"href": message.link, "text": "Look and acknowledge"}]
    return made

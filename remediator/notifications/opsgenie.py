"""Opsgenie and the compatible Jira Service Management: an alert is created, acknowledged and closed by its alias.

Fields and limits are those of the Alert API (docs.opsgenie.com): message 130 characters, alias 512, description 15000,
entity 512.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from remediator.model.delivery import NotificationPhase
from remediator.notifications.delivery_pacing import BatchingMode, RateLimit
from remediator.notifications.envelope import Envelope
from remediator.notifications.http_post import HttpPostRequest
from remediator.notifications.receiver import HttpReceiver, truncate_text
from remediator.notifications.secret_files import read_secret
from vocabulary.finding import Severity

MESSAGE_MAX, ALIAS_MAX, DESCRIPTION_MAX, ENTITY_MAX = 130, 512, 15_000, 512
_SOURCE = "gpu-healthd"
_PRIORITY = {
    Severity.FATAL: "P1",
    Severity.ERROR: "P2",
    Severity.UNCLASSIFIED: "P3",
    Severity.WARNING: "P3",
    Severity.INFO: "P5",
}
_VERB = {NotificationPhase.ACKNOWLEDGE: "acknowledge", NotificationPhase.RESOLVE: "close"}


class Opsgenie(HttpReceiver, frozen=True, kw_only=True, tag="opsgenie"):
    """An API integration. In the EU, or for Jira Service Management, `url` is another one that ends in ``/v2/alerts``."""

    TOGETHER: ClassVar[BatchingMode] = BatchingMode.INCIDENT
    LIFE_CYCLE: ClassVar[bool] = True

    key_file: str  # file with the integration's key
    url: str = "https://api.opsgenie.com/v2/alerts"
    group_s: float = 0.0
    rate: RateLimit = RateLimit(messages=10, per_s=60.0)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build one request: to the collection for a new alert, to the alert itself for updates."""
        headers = {"authorization": f"GenieKey {read_secret(self.key_file)}"}
        base = self.address().rstrip("/")
        if envelope.phase is NotificationPhase.FIRE:
            return self.request(base, build_opsgenie_alert(envelope), headers)
        url = f"{base}/{quote(envelope.thread[:ALIAS_MAX], safe='')}/{_VERB[envelope.phase]}?identifierType=alias"
        return self.request(url, {"source": _SOURCE, "note": truncate_text(envelope.text, DESCRIPTION_MAX)}, headers)


def build_opsgenie_alert(envelope: Envelope) -> dict[str, Any]:
    """Build a new alert; an open one with the same alias counts it as a repetition."""
    message = envelope.first
    details = {"id": envelope.id, "incident": message.incident, "cluster": message.cluster, "link": message.link}
    return {
        "message": truncate_text(envelope.title, MESSAGE_MAX),
        "alias": envelope.thread[:ALIAS_MAX],
        "description": truncate_text(envelope.text, DESCRIPTION_MAX),
        "entity": truncate_text(message.node, ENTITY_MAX),
        "source": _SOURCE,
        "priority": _PRIORITY[envelope.severity],
        "tags": [tag for tag in (_SOURCE, message.rule, "drill" if message.injected else "") if tag],
        "details": {key: value for key, value in {**message.labels, **details}.items() if value},
    }

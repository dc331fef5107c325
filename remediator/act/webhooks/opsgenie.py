"""Opsgenie, and Jira Service Management, which speaks the same: an alert is created, acknowledged and closed by its alias.

Fields and limits are those of the Alert API's documentation (docs.opsgenie.com): message 130 characters, alias 512,
description 15000, entity 512.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from remediator.act.webhooks.envelope import Envelope
from remediator.act.webhooks.pace import Rate, Together
from remediator.act.webhooks.post import Request
from remediator.act.webhooks.receiver import HttpReceiver, cut
from remediator.act.webhooks.secret import read_one
from remediator.model.delivery import Phase
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
_VERB = {Phase.ACKNOWLEDGE: "acknowledge", Phase.RESOLVE: "close"}


class Opsgenie(HttpReceiver, frozen=True, kw_only=True, tag="opsgenie"):
    """An API integration. In the EU, or for Jira Service Management, `url` is another one that ends in ``/v2/alerts``."""

    TOGETHER: ClassVar[Together] = Together.INCIDENT
    LIFE_CYCLE: ClassVar[bool] = True

    key_file: str  # holds the integration's key
    url: str = "https://api.opsgenie.com/v2/alerts"
    group_s: float = 0.0
    rate: Rate = Rate(messages=10, per_s=60.0)

    def compose(self, envelope: Envelope) -> Request:
        """One request: to the collection for a new alert, to the alert itself for what follows."""
        headers = {"authorization": f"GenieKey {read_one(self.key_file)}"}
        base = self.address().rstrip("/")
        if envelope.phase is Phase.FIRE:
            return self.request(base, alert(envelope), headers)
        url = f"{base}/{quote(envelope.thread[:ALIAS_MAX], safe='')}/{_VERB[envelope.phase]}?identifierType=alias"
        return self.request(url, {"source": _SOURCE, "note": cut(envelope.text, DESCRIPTION_MAX)}, headers)


def alert(envelope: Envelope) -> dict[str, Any]:
    """A new alert; an open one with the same alias counts it as a repetition."""
    message = envelope.first
    details = {"id": envelope.id, "incident": message.incident, "cluster": message.cluster, "link": message.link}
    return {
        "message": cut(envelope.title, MESSAGE_MAX),
        "alias": envelope.thread[:ALIAS_MAX],
        "description": cut(envelope.text, DESCRIPTION_MAX),
        "entity": cut(message.node, ENTITY_MAX),
        "source": _SOURCE,
        "priority": _PRIORITY[envelope.severity],
        "tags": [tag for tag in (_SOURCE, message.rule, "drill" if message.injected else "") if tag],
        "details": {key: value for key, value in {**message.labels, **details}.items() if value},
    }

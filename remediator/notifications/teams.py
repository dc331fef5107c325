"""Microsoft Teams, through a workflow triggered by a webhook request: one Adaptive Card per message.

Limits: 28 KB per message, four requests a second (learn.microsoft.com, Teams limits).
"""

from __future__ import annotations

from typing import Any

from remediator.model.delivery import NotificationPhase
from remediator.notifications.delivery_pacing import RateLimit
from remediator.notifications.envelope import Envelope
from remediator.notifications.http_post import HttpPostRequest
from remediator.notifications.receiver import HttpReceiver, truncate_text
from vocabulary.finding import Severity

TEXT_MAX = 5000  # at most four bytes each: well below the limit
TITLE_MAX = 300
_COLOUR = {
    Severity.FATAL: "attention",
    Severity.ERROR: "attention",
    Severity.UNCLASSIFIED: "warning",
    Severity.WARNING: "warning",
    Severity.INFO: "accent",
}


class Teams(HttpReceiver, frozen=True, kw_only=True, tag="teams"):
    """A workflow's webhook. Its URL is the secret: name a file under `url_file`."""

    rate: RateLimit = RateLimit(messages=20, per_s=60.0)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build the card for a batch."""
        content = {
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": None,
            "content": build_adaptive_card(envelope),
        }
        return self.request(self.address(), {"type": "message", "attachments": [content]})


def build_adaptive_card(envelope: Envelope) -> dict[str, Any]:
    """Build the Adaptive Card, version 1.4."""
    message = envelope.first
    colour = "good" if envelope.phase is NotificationPhase.RESOLVE else _COLOUR[envelope.severity]
    facts = {"Cluster": message.cluster, "Severity": envelope.severity.value, "Rule": message.rule, "Id": envelope.id}
    made: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {
                "type": "TextBlock",
                "size": "large",
                "weight": "bolder",
                "wrap": True,
                "color": colour,
                "text": _escape_card_markdown(truncate_text(envelope.title, TITLE_MAX)),
            },
            {
                "type": "TextBlock",
                "wrap": True,
                "text": _escape_card_markdown(truncate_text(envelope.text, TEXT_MAX)).replace("\n", "\n\n"),
            },
            {
                "type": "FactSet",
                "facts": [{"title": k, "value": truncate_text(v, TITLE_MAX)} for k, v in facts.items() if v],
            },
        ],
    }
    if message.link:
        made["actions"] = [{"type": "Action.OpenUrl", "title": "View and acknowledge", "url": message.link}]
    return made


def _escape_card_markdown(text: str) -> str:
    """Escape Markdown: text from nodes must not become links or headings."""
    return "".join(f"\\{c}" if c in "\\*_[]#`" else c for c in text)

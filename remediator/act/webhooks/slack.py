"""Slack, by an incoming webhook: a header, a section of text, a context line, a button to the incident.

Limits are Slack's (docs.slack.dev, Block Kit reference): 150 characters in a header, 3000 in a section, one message a second.
"""

from __future__ import annotations

from typing import Any

from remediator.act.webhooks.envelope import Envelope
from remediator.act.webhooks.pace import Rate
from remediator.act.webhooks.post import Request
from remediator.act.webhooks.receiver import HttpReceiver, cut
from remediator.model.delivery import Phase
from vocabulary.finding import Severity

HEADER_MAX, SECTION_MAX, CONTEXT_MAX = 150, 3000, 2000
_MARK = {
    Severity.FATAL: ":red_circle:",
    Severity.ERROR: ":red_circle:",
    Severity.UNCLASSIFIED: ":large_orange_circle:",
    Severity.WARNING: ":large_orange_circle:",
    Severity.INFO: ":large_blue_circle:",
}


class Slack(HttpReceiver, frozen=True, kw_only=True, tag="slack"):
    """An incoming webhook. Its URL is the secret: name a file under `url_file`."""

    rate: Rate = Rate(messages=20, per_s=60.0)

    def compose(self, envelope: Envelope) -> Request:
        """The piece as blocks, with plain text for notifications."""
        return self.request(self.address(), blocks(envelope))


def blocks(envelope: Envelope) -> dict[str, Any]:
    """The payload."""
    mark = ":white_check_mark:" if envelope.phase is Phase.RESOLVE else _MARK[envelope.severity]
    message = envelope.first
    context = f"cluster {escaped(message.cluster)} · {escaped(message.rule)} · {envelope.id}"
    found: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": cut(f"{mark} {envelope.title}", HEADER_MAX)}},
        {"type": "section", "text": {"type": "mrkdwn", "text": _section(envelope.text or envelope.title)}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": cut(context, CONTEXT_MAX)}]},
    ]
    if message.link:
        button = {"type": "button", "text": {"type": "plain_text", "text": "Look and acknowledge"}, "url": message.link}
        found.append({"type": "actions", "elements": [button]})
    return {"text": cut(escaped(envelope.title), SECTION_MAX), "blocks": found}


def _section(text: str) -> str:
    """As much as fits once it is escaped; never half an entity."""
    said = cut(text, SECTION_MAX)
    while len(escaped(said)) > SECTION_MAX:
        said = cut(said, len(said) - max(1, len(escaped(said)) - SECTION_MAX) // 4 - 1)
    return escaped(said)


def escaped(text: str) -> str:
    """The three characters that Slack takes as its own: a message can neither link nor call people."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""Slack, by an incoming webhook: a header, a section of text, a context line, a button to the incident.

Limits are Slack's (docs.slack.dev, Block Kit reference): 150 characters in a header, 3000 in a section, one message a
second.
"""

from __future__ import annotations

from typing import Any

from remediator.model.delivery import NotificationPhase
from remediator.notifications.delivery_pacing import RateLimit
from remediator.notifications.envelope import Envelope
from remediator.notifications.http_post import HttpPostRequest
from remediator.notifications.receiver import HttpReceiver, truncate_text
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

    rate: RateLimit = RateLimit(messages=20, per_s=60.0)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build the batch as blocks, with plain text for notifications."""
        return self.request(self.address(), build_slack_blocks(envelope))


def build_slack_blocks(envelope: Envelope) -> dict[str, Any]:
    """Build the payload."""
    mark = ":white_check_mark:" if envelope.phase is NotificationPhase.RESOLVE else _MARK[envelope.severity]
    message = envelope.first
    context = f"cluster {escape_mrkdwn(message.cluster)} · {escape_mrkdwn(message.rule)} · {envelope.id}"
    found: list[dict[str, Any]] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": truncate_text(f"{mark} {envelope.title}", HEADER_MAX)},
        },
        {"type": "section", "text": {"type": "mrkdwn", "text": _build_section_text(envelope.text or envelope.title)}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": truncate_text(context, CONTEXT_MAX)}]},
    ]
    if message.link:
        button = {"type": "button", "text": {"type": "plain_text", "text": "View and acknowledge"}, "url": message.link}
        found.append({"type": "actions", "elements": [button]})
    return {"text": truncate_text(escape_mrkdwn(envelope.title), SECTION_MAX), "blocks": found}


def _build_section_text(text: str) -> str:
    """Fit the escaped text into a section, without splitting an entity."""
    said = truncate_text(text, SECTION_MAX)
    while len(escape_mrkdwn(said)) > SECTION_MAX:
        said = truncate_text(said, len(said) - max(1, len(escape_mrkdwn(said)) - SECTION_MAX) // 4 - 1)
    return escape_mrkdwn(said)


def escape_mrkdwn(text: str) -> str:
    """Escape Slack's three control characters, so that a message can neither link nor mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

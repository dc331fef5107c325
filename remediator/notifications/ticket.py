"""A ticket, or an RMA with a vendor: a POST whose whole body is the site's template."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from remediator.notifications.delivery_pacing import BatchingMode, RateLimit
from remediator.notifications.envelope import Envelope
from remediator.notifications.http_post import HttpPostRequest
from remediator.notifications.message_templates import check_template, fill_template
from remediator.notifications.receiver import HttpReceiver
from remediator.notifications.secret_files import read_secret
from remediator.notifications.standard_webhooks import build_webhook_payload


class TicketWebhook(HttpReceiver, frozen=True, kw_only=True, tag="ticket"):
    """Receives `ticket` steps unless routes say otherwise. `body` is a template; ``| tojson`` quotes a value for JSON."""

    TOGETHER: ClassVar[BatchingMode] = BatchingMode.INCIDENT
    APART: ClassVar[bool] = True  # a vendor accepts one case per part

    body: str = ""  # a Jinja2 template of the whole body; empty: our JSON
    content_type: str = "application/json"  # of `body`
    authorization_file: str = ""  # file with the header's whole value, e.g. "Bearer …"
    group_s: float = 0.0
    rate: RateLimit = RateLimit(messages=30, per_s=3600.0)
    quiet_hours: bool = False
    resolved: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.body)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Render the site's body; if its template fails, the generic one with a note about it."""
        headers = {"idempotency-key": envelope.id}
        if self.authorization_file:
            headers["authorization"] = read_secret(self.authorization_file)
        trouble: list[str] = []
        filled = fill_template(self.body, envelope.items, trouble) if self.body else None
        if filled is not None:
            return self.request(self.address(), filled.encode(), {**headers, "content-type": self.content_type})
        text = "\n".join([envelope.text, *trouble])
        return self.request(
            self.address(), build_webhook_payload(msgspec.structs.replace(envelope, text=text)), headers
        )

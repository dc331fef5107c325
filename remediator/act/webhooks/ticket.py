"""A ticket or an RMA with a vendor: a POST whose whole body is the site's template."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from remediator.act.webhooks.envelope import Envelope
from remediator.act.webhooks.generic import payload
from remediator.act.webhooks.pace import Rate, Together
from remediator.act.webhooks.post import Request
from remediator.act.webhooks.receiver import HttpReceiver
from remediator.act.webhooks.secret import read_one
from remediator.act.webhooks.wording import check_template, fill


class Ticket(HttpReceiver, frozen=True, kw_only=True, tag="ticket"):
    """Takes `ticket` steps unless routes say otherwise. `body` is a template; ``| tojson`` quotes a value for JSON."""

    TOGETHER: ClassVar[Together] = Together.INCIDENT
    APART: ClassVar[bool] = True  # a vendor takes one case for one part

    body: str = ""  # a Jinja2 template of the whole body; none: our JSON
    content_type: str = "application/json"  # of `body`
    authorization_file: str = ""  # the header's whole value, e.g. "Bearer …"
    group_s: float = 0.0
    rate: Rate = Rate(messages=30, per_s=3600.0)
    quiet_hours: bool = False
    resolved: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.body)

    def compose(self, envelope: Envelope) -> Request:
        """The site's form; if its template breaks, the generic one with a word about it."""
        headers = {"idempotency-key": envelope.id}
        if self.authorization_file:
            headers["authorization"] = read_one(self.authorization_file)
        trouble: list[str] = []
        filled = fill(self.body, envelope.items, trouble) if self.body else None
        if filled is not None:
            return self.request(self.address(), filled.encode(), {**headers, "content-type": self.content_type})
        text = "\n".join([envelope.text, *trouble])
        return self.request(self.address(), payload(msgspec.structs.replace(envelope, text=text)), headers)

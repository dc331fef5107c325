"""Any program that takes JSON, signed as the Standard Webhooks specification says, and the plain form of earlier versions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any, ClassVar

import msgspec

from remediator.act.webhooks.envelope import Envelope
from remediator.act.webhooks.pace import Rate, Together
from remediator.act.webhooks.post import Request
from remediator.act.webhooks.receiver import HttpReceiver
from remediator.act.webhooks.secret import SecretError, read_lines
from remediator.act.webhooks.times import rfc3339
from remediator.model.delivery import Message

KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64
_PREFIX = "whsec_"


class Generic(HttpReceiver, frozen=True, kw_only=True, tag="webhook"):
    """Signed JSON. `keys_file`: one ``whsec_…`` a line; each signs, so that keys are changed without a gap."""

    keys_file: str  # one key a line; each signs

    def compose(self, envelope: Envelope) -> Request:
        """The piece with all its messages whole."""
        body = msgspec.json.encode(payload(envelope))
        stamp = str(int(envelope.now))
        headers = {
            "webhook-id": envelope.id,
            "webhook-timestamp": stamp,
            "webhook-signature": signatures(envelope.id, stamp, body, read_keys(self.keys_file)),
        }
        return self.request(self.address(), body, headers)


class Plain(HttpReceiver, frozen=True, kw_only=True, tag="plain"):
    """What `alerts.webhooks` stands for: one unsigned JSON object a message, its id as idempotency key."""

    TOGETHER: ClassVar[Together] = Together.NOTHING

    group_s: float = 0.0
    rate: Rate = Rate(messages=600, per_s=60.0)
    quiet_hours: bool = False
    resolved: bool = False

    def compose(self, envelope: Envelope) -> Request:
        """The message as it is; too many in too short a time become one, whose kind is `summary`."""
        message = envelope.first if len(envelope.items) == 1 else summary(envelope)
        return self.request(self.address(), message, {"idempotency-key": envelope.id})


def summary(envelope: Envelope) -> Message:
    """One message that stands for many."""
    return msgspec.structs.replace(
        envelope.first, id=envelope.id, kind="summary", title=envelope.title, text=envelope.text
    )


def payload(envelope: Envelope) -> dict[str, Any]:
    """Type, time of the event, data: the same for every attempt."""
    alerts = [{**msgspec.to_builtins(item.message), "phase": item.phase.value} for item in envelope.items]
    return {
        "type": "gpu_healthd.alerts",
        "timestamp": rfc3339(envelope.items[0].created_at),
        "data": {
            "cluster": envelope.first.cluster,
            "title": envelope.title,
            "text": envelope.text,
            "alerts": alerts,
        },
    }


def read_keys(file: str) -> list[bytes]:
    """The signing keys, the current one first.

    Raises:
        SecretError: the file cannot be used, or a line is no ``whsec_`` and base64 of 24 to 64 bytes.
    """
    keys = []
    for number, line in enumerate(read_lines(file), 1):
        try:
            key = base64.b64decode(line.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not line.startswith(_PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise SecretError(f"{file}: key {number} is not '{_PREFIX}' and base64 of 24 to 64 bytes")
        keys.append(key)
    return keys


def signatures(webhook_id: str, stamp: str, body: bytes, keys: list[bytes]) -> str:
    """The value of `webhook-signature`: one ``v1,…`` for each key, parted by spaces."""
    signed = f"{webhook_id}.{stamp}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)

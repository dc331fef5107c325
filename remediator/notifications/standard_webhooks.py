"""Webhooks for any JSON client, signed by the Standard Webhooks specification, and the plain form of earlier versions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any, ClassVar

import msgspec

from remediator.model.delivery import NotificationMessage
from remediator.notifications.delivery_pacing import BatchingMode, RateLimit
from remediator.notifications.envelope import Envelope
from remediator.notifications.http_post import HttpPostRequest
from remediator.notifications.receiver import HttpReceiver
from remediator.notifications.secret_files import SecretError, read_secret_lines
from remediator.notifications.timestamps import format_rfc3339

KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64
_PREFIX = "whsec_"


class StandardWebhook(HttpReceiver, frozen=True, kw_only=True, tag="webhook"):
    """Signed JSON. `keys_file`: one ``whsec_…`` a line; all of them sign, so that keys rotate without a gap."""

    keys_file: str  # file with one key a line; each signs

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build the batch with all its messages in full."""
        body = msgspec.json.encode(build_webhook_payload(envelope))
        stamp = str(int(envelope.now))
        headers = {
            "webhook-id": envelope.id,
            "webhook-timestamp": stamp,
            "webhook-signature": sign_webhook(envelope.id, stamp, body, read_signing_keys(self.keys_file)),
        }
        return self.request(self.address(), body, headers)


class PlainWebhook(HttpReceiver, frozen=True, kw_only=True, tag="plain"):
    """The form behind `alerts.webhooks`: one unsigned JSON object a message, its id as idempotency key."""

    TOGETHER: ClassVar[BatchingMode] = BatchingMode.NOTHING

    group_s: float = 0.0
    rate: RateLimit = RateLimit(messages=600, per_s=60.0)
    quiet_hours: bool = False
    resolved: bool = False

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build the message; many at once become one, from `summarize_envelope`."""
        message = envelope.first if len(envelope.items) == 1 else summarize_envelope(envelope)
        return self.request(self.address(), message, {"idempotency-key": envelope.id})


def summarize_envelope(envelope: Envelope) -> NotificationMessage:
    """Build one message that stands for many."""
    return msgspec.structs.replace(
        envelope.first, id=envelope.id, kind="summary", title=envelope.title, text=envelope.text
    )


def build_webhook_payload(envelope: Envelope) -> dict[str, Any]:
    """Return type, event time and data: the same for every attempt."""
    alerts = [{**msgspec.to_builtins(item.message), "phase": item.phase.value} for item in envelope.items]
    return {
        "type": "gpu_healthd.alerts",
        "timestamp": format_rfc3339(envelope.items[0].created_at),
        "data": {
            "cluster": envelope.first.cluster,
            "title": envelope.title,
            "text": envelope.text,
            "alerts": alerts,
        },
    }


def read_signing_keys(file: str) -> list[bytes]:
    """Return the signing keys, the current one first.

    Raises:
        SecretError: the file cannot be used, or a line is not ``whsec_`` and base64 of 24 to 64 bytes.
    """
    keys = []
    for number, line in enumerate(read_secret_lines(file), 1):
        try:
            key = base64.b64decode(line.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not line.startswith(_PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise SecretError(f"{file}: key {number} is not '{_PREFIX}' and base64 of 24 to 64 bytes")
        keys.append(key)
    return keys


def sign_webhook(webhook_id: str, stamp: str, body: bytes, keys: list[bytes]) -> str:
    """Return the value of `webhook-signature`: one ``v1,…`` per key, separated by spaces."""
    signed = f"{webhook_id}.{stamp}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)

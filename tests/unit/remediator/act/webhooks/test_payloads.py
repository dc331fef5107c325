"""What each kind of receiver is sent, as golden files: one alert, many, and its end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.model.delivery import Delivery, NotificationPhase
from remediator.notifications.envelope import Envelope
from remediator.notifications.receiver import HttpReceiver, Receiver
from remediator.notifications.receiver_registry import AnyReceiver
from remediator.notifications.slack import SECTION_MAX, build_slack_blocks
from remediator.notifications.smtp_mail import EmailReceiver, compose_email
from remediator.notifications.standard_webhooks import sign_webhook
from remediator.notifications.teams import build_adaptive_card
from tests.unit.remediator.act.webhooks.peer import AT, delivery, message, resolved
from vocabulary.finding import Severity

Golden = Callable[[str, str], None]
KEY = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD_KEY = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()

DRILL = message(3, injected=True, severity=Severity.WARNING, page=False)
MANY = (delivery(1), delivery(2), delivery(3, message=DRILL))
SITUATIONS: dict[str, tuple[Delivery, ...]] = {
    "one": (delivery(1),),
    "many": MANY,
    "taken_up": (msgspec.structs.replace(delivery(1), phase=NotificationPhase.ACKNOWLEDGE),),
    "over": (resolved(delivery(1)),),
}


def receiver(kind: str, place: Path) -> Receiver:
    (place / "keys").write_text(f"# the new one first\n{KEY}\n{OLD_KEY}\n")
    (place / "key").write_text("0123456789abcdef0123456789abcdef\n")
    web = {"url": "https://receiver.example/x"}
    key = str(place / "key")
    details: dict[str, dict[str, Any]] = {
        "webhook": {**web, "keys_file": str(place / "keys")},
        "plain": web,
        "slack": web,
        "teams": web,
        "pagerduty": {"routing_key_file": key},
        "opsgenie": {"key_file": key},
        "alertmanager": {"url": "http://am.example:9093"},
        "email": {"host": "mail.example", "sender": "healthd@example.org", "to": ["ops@example.org"]},
        "ticket": {**web, "authorization_file": key},
    }
    return msgspec.convert({"kind": kind, **details[kind]}, AnyReceiver)


KINDS = ("webhook", "plain", "slack", "teams", "pagerduty", "opsgenie", "alertmanager", "email", "ticket")


def shown(one: Receiver, envelope: Envelope) -> str:
    if isinstance(one, EmailReceiver):
        return compose_email(one, envelope).as_string()
    assert isinstance(one, HttpReceiver)
    request = one.compose(envelope)
    headers = "".join(f"{name}: {value}\n" for name, value in sorted(request.headers.items()))
    return f"POST {request.url}\n{headers}\n{json.dumps(json.loads(request.body), indent=2, ensure_ascii=False)}\n"


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_payload(kind: str, situation: str, golden: Golden, tmp_path: Path) -> None:
    one = receiver(kind, tmp_path)
    items = SITUATIONS[situation]
    golden(f"webhooks/{kind}_{situation}.txt", shown(one, one.envelope("msg_0123456789abcdef01234567", items, AT + 60)))


def test_each_key_signs_the_bytes_that_are_sent(tmp_path: Path) -> None:
    one = receiver("webhook", tmp_path)
    assert isinstance(one, HttpReceiver)
    request = one.compose(one.envelope("msg_a", MANY, AT))
    stamp = request.headers["webhook-timestamp"]
    signed = b"msg_a." + stamp.encode() + b"." + request.body
    expected = [
        "v1," + base64.b64encode(hmac.new(bytes(key), signed, hashlib.sha256).digest()).decode()
        for key in (range(32), range(32, 64))
    ]
    assert request.headers["webhook-signature"].split(" ") == expected
    assert stamp == str(int(AT))


def test_the_signature_is_the_one_that_the_specification_s_own_libraries_expect() -> None:
    # The vector of the reference libraries' test suites (github.com/standard-webhooks/standard-webhooks).
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = sign_webhook("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}', [key])
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(
    st.text(max_size=6000),
    st.text(max_size=6000),
    st.sampled_from(Severity),
    st.sampled_from(NotificationPhase),
    st.integers(1, 60),
)
def test_limits_of_chats_hold_whatever_nodes_say(
    title: str, text: str, severity: Severity, phase: NotificationPhase, count: int
) -> None:
    said = message(title=title, text=text, severity=severity)
    items = tuple(delivery(n, message=said, phase=phase) for n in range(count))
    envelope = Receiver().envelope("msg_a", items, AT)
    made = build_slack_blocks(envelope)
    texts = [block["text"]["text"] for block in made["blocks"] if "text" in block]
    assert len(texts[0]) <= 150
    assert 0 < len(texts[1]) <= SECTION_MAX
    assert "<" not in texts[1]
    assert len(msgspec.json.encode(build_adaptive_card(envelope))) < 28_000


def test_a_subject_with_line_breaks_cannot_add_headers(tmp_path: Path) -> None:
    one = receiver("email", tmp_path)
    assert isinstance(one, EmailReceiver)
    item = delivery(message=message(title="x\r\nBcc: everybody@example.org"))
    made = compose_email(one, one.envelope("msg_a", (item,), AT))
    assert made["Bcc"] is None
    assert "Bcc: everybody" in made["Subject"]

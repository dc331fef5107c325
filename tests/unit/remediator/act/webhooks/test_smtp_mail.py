"""E-mail to a real SMTP server that asks for STARTTLS and a password."""

from __future__ import annotations

import base64
import email
import socketserver
import ssl
import threading
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remediator.notifications.envelope import DeliveryAnswer
from remediator.notifications.receiver_registry import AnyReceiver
from remediator.notifications.smtp_mail import EmailReceiver
from tests.unit.remediator.act.webhooks.peer import AT, delivery, resolved


class SmtpServer(socketserver.ThreadingTCPServer):
    """As much of RFC 5321 as a submission needs. `answers` replaces the answer to a verb."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.mails: list[Message] = []
        self.said: list[str] = []
        self.answers: dict[str, bytes] = {}
        self.greeting = b"220 here\r\n"
        super().__init__(("127.0.0.1", 0), _Talk)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class _Talk(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        try:
            self.talk()
        except OSError:
            pass  # it was cut off
        finally:
            for one in (self.rfile, self.wfile, self.request):
                one.close()

    def talk(self) -> None:
        server = self.server
        assert isinstance(server, SmtpServer)
        self.wfile.write(server.greeting)
        secure = False
        while line := self.rfile.readline():
            verb = line[:8].strip().upper().decode().split(" ")[0]
            server.said.append(f"{'tls ' if secure else ''}{line.decode().strip()}")
            if verb in server.answers:
                self.wfile.write(server.answers[verb])
            elif verb == "EHLO":
                self.wfile.write(b"250-here\r\n250 AUTH PLAIN\r\n" if secure else b"250-here\r\n250 STARTTLS\r\n")
            elif verb == "STARTTLS":
                self.wfile.write(b"220 go on\r\n")
                self.request = server.context.wrap_socket(self.request, server_side=True)
                self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", buffering=0)
                secure = True
            elif verb == "AUTH":
                self.wfile.write(b"235 welcome\r\n")
            elif verb == "DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                server.mails.append(email.message_from_bytes(b"".join(lines)))
                self.wfile.write(b"250 taken\r\n")
            else:
                self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def server(certificate: Path) -> Iterator[SmtpServer]:
    made = SmtpServer(certificate)
    yield made
    made.shutdown()
    made.server_close()


def receiver(server: SmtpServer, certificate: Path, tmp_path: Path, **changes: Any) -> EmailReceiver:
    (tmp_path / "password").write_text("open sesame")
    made = {
        "kind": "email",
        "host": "127.0.0.1",
        "port": server.server_address[1],
        "sender": "healthd@example.org",
        "to": ["ops@example.org", "boss@example.org"],
        "user": "healthd",
        "password_file": str(tmp_path / "password"),
        "ca_file": str(certificate),
        **changes,
    }
    found = msgspec.convert(made, AnyReceiver)
    assert isinstance(found, EmailReceiver)
    return found


def send(one: EmailReceiver) -> DeliveryAnswer:
    return one.send(one.envelope("msg_a", (delivery(1),), AT))


def test_a_mail_goes_through_tls_and_its_repetition_has_the_same_id(
    server: SmtpServer, certificate: Path, tmp_path: Path
) -> None:
    one = receiver(server, certificate, tmp_path)
    assert send(one) == DeliveryAnswer(True, "127.0.0.1: accepted for 2")
    assert send(one).taken
    first, second = server.mails
    assert first["Message-ID"] == second["Message-ID"] == "<msg_a@gpu-healthd.invalid>"
    assert first["Subject"] == "fatal: n1: xid/79 on gpu 3"
    assert "a GPU fell off the bus" in first.get_payload(decode=True).decode()  # type: ignore[union-attr]  # a plain mail
    login = base64.b64encode(b"\0healthd\0open sesame").decode()
    assert f"tls AUTH PLAIN {login}" in server.said
    assert not any("AUTH" in line or "MAIL" in line for line in server.said if not line.startswith("tls "))


def test_what_belongs_to_one_incident_stands_together(server: SmtpServer, certificate: Path, tmp_path: Path) -> None:
    one = receiver(server, certificate, tmp_path)
    one.send(one.envelope("msg_a", (delivery(1),), AT))
    one.send(one.envelope("msg_b", (resolved(delivery(1)),), AT))
    first, second = server.mails
    assert first["References"] == second["References"]
    assert first["Message-ID"] != second["Message-ID"]
    assert second["Subject"].startswith("resolved: ")


def test_a_server_whose_certificate_nobody_vouches_for_gets_neither_mail_nor_password(
    server: SmtpServer, certificate: Path, tmp_path: Path
) -> None:
    answer = send(receiver(server, certificate, tmp_path, ca_file=""))
    assert (answer.taken, answer.words) == (False, "127.0.0.1: TLS: CERTIFICATE_VERIFY_FAILED")
    assert server.mails == []
    assert not any("AUTH" in line for line in server.said)


def test_a_server_without_tls_gets_nothing(server: SmtpServer, certificate: Path, tmp_path: Path) -> None:
    server.answers["EHLO"] = b"250 here\r\n"
    answer = send(receiver(server, certificate, tmp_path))
    assert not answer.taken
    assert not any("AUTH" in line or "MAIL" in line for line in server.said)


@pytest.mark.parametrize(
    ("verb", "says", "refused"),
    [
        ("AUTH", b"535 no open sesame here\r\n", "refused"),
        ("DATA", b"451 later\r\n", "down"),
        ("RCPT", b"550 who?\r\n", "refused"),
    ],
)
def test_a_refusal_is_told_from_trouble(
    server: SmtpServer, certificate: Path, tmp_path: Path, verb: str, says: bytes, refused: str
) -> None:
    server.answers[verb] = says
    answer = send(receiver(server, certificate, tmp_path))
    assert (answer.taken, answer.refused, answer.down) == (False, refused == "refused", refused == "down")
    assert "sesame" not in answer.words


def test_a_server_that_drips_is_cut_off(server: SmtpServer, certificate: Path, tmp_path: Path) -> None:
    server.greeting = b"220-still\r\n" * 5 + b"220-"  # and never a last line
    answer = send(receiver(server, certificate, tmp_path, timeout_s=0.3))
    assert (answer.taken, answer.down) == (False, True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sender": "healthd"}, "no domain"),
        ({"sender": ""}, "is not a mail address"),
        ({"to": ["a@"]}, "is not a mail address"),
        ({"to": ["a@b\nBcc: x@y"]}, "is not a mail address"),
        ({"to": ["@b"]}, "is not a mail address"),
        ({"password_file": ""}, "go together"),
        ({"starttls": False}, "a password needs 'starttls'"),
        ({"to": []}, "length >= 1"),
    ],
)
def test_a_wrong_configuration_is_refused(
    server: SmtpServer, certificate: Path, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises((msgspec.ValidationError, ValueError), match=says):
        receiver(server, certificate, tmp_path, **changes)

"""E-mail by SMTP with STARTTLS. A repeated message keeps its Message-ID, so that mailboxes show it once."""

from __future__ import annotations

import contextlib
import datetime as dt
import smtplib
import socket
import ssl
import time
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Annotated

import msgspec

from remediator.notifications.connection_deadline import connect_before_deadline, shut_down_after
from remediator.notifications.envelope import DeliveryAnswer, Envelope
from remediator.notifications.receiver import Receiver
from remediator.notifications.secret_files import SecretError, read_secret

SUBJECT_MAX = 200


class EmailReceiver(Receiver, frozen=True, kw_only=True, tag="email"):
    """`starttls: false` is for a relay on this machine only; a password never crosses an unencrypted connection."""

    host: str  # the mail server
    sender: str  # sender address
    to: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=100)]  # recipients
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 587  # of the server
    starttls: bool = True  # false only without a password
    ca_file: str = ""  # CA of the server's certificate; empty: the system's
    user: str = ""  # login name
    password_file: str = ""  # goes with `user`

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in (self.sender, *self.to):
            _check_address(address)
        if bool(self.user) != bool(self.password_file):
            raise ValueError("'user' and 'password_file' go together")
        if self.user and not self.starttls:
            raise ValueError("a password needs 'starttls'")

    def send(self, envelope: Envelope) -> DeliveryAnswer:
        """Make one attempt. A timer limits it as a whole, because each of the protocol's steps has its own time-out."""
        try:
            password = read_secret(self.password_file) if self.password_file else ""
        except SecretError as error:
            return DeliveryAnswer(False, str(error), refused=True)
        try:
            self._deliver(compose_email(self, envelope), password)
        except smtplib.SMTPResponseException as error:
            refused = 500 <= error.smtp_code < 600
            return DeliveryAnswer(
                False, f"{self.host}: {error.smtp_code} from the server", down=not refused, refused=refused
            )
        except smtplib.SMTPRecipientsRefused as error:
            return DeliveryAnswer(
                False, f"{self.host}: no recipient accepted ({len(error.recipients)} refused)", refused=True
            )
        except ssl.SSLError as error:
            return DeliveryAnswer(False, f"{self.host}: TLS: {error.reason or type(error).__name__}", down=True)
        except (OSError, smtplib.SMTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            return DeliveryAnswer(False, f"{self.host}: {why}", down=True)
        return DeliveryAnswer(True, f"{self.host}: accepted for {len(self.to)}")

    def _deliver(self, message: EmailMessage, password: str) -> None:
        ends = time.monotonic() + self.timeout_s
        with (
            contextlib.closing(connect_before_deadline(self.host, self.port, ends)) as raw,
            shut_down_after(raw, ends - time.monotonic()),
            contextlib.closing(_ConnectedSmtpClient(raw, self)) as client,
        ):
            if self.starttls:
                client.starttls(context=ssl.create_default_context(cafile=self.ca_file or None))
            if self.user:
                client.login(self.user, password)
            client.send_message(message)


def _check_address(text: str) -> None:
    try:
        found = Address(addr_spec=text)
    except (MessageError, ValueError, IndexError) as error:  # the address parser raises IndexError on some input
        raise ValueError(f"'{text}' is not a mail address: {error}") from None
    if not found.username or not found.domain or not text.isascii():
        raise ValueError(f"'{text}' is not a mail address")


class _ConnectedSmtpClient(smtplib.SMTP):
    """smtplib over an existing connection, so that it can be cut off."""

    def __init__(self, raw: socket.socket, receiver: EmailReceiver) -> None:
        self._raw = raw
        super().__init__(receiver.host, receiver.port, socket.gethostname(), receiver.timeout_s)

    def _get_socket(self, *_: object) -> socket.socket:
        return self._raw


def compose_email(receiver: EmailReceiver, envelope: Envelope) -> EmailMessage:
    """Build the mail. `email`'s own policy sets headers, and refuses line breaks in them."""
    message = EmailMessage()
    message["Subject"] = envelope.title[:SUBJECT_MAX]
    message["From"] = receiver.sender
    message["To"] = ", ".join(receiver.to)
    message["Date"] = format_datetime(dt.datetime.fromtimestamp(envelope.items[0].created_at, dt.timezone.utc))
    message["Message-ID"] = f"<{envelope.id}@gpu-healthd.invalid>"
    thread = f"<{envelope.thread or envelope.id}.thread@gpu-healthd.invalid>"
    message["References"] = thread  # mailboxes group the messages of one incident
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(envelope.text)
    return message

"""Base classes of receivers: pacing, templates and deadline; and the URL of HTTP receivers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from remediator.model.delivery import Delivery
from remediator.notifications.delivery_pacing import BatchingMode, DeliveryPacing, RateLimit
from remediator.notifications.envelope import DeliveryAnswer, Envelope
from remediator.notifications.http_post import HttpPostRequest, send_http_post
from remediator.notifications.message_templates import check_template, render_message_texts
from remediator.notifications.secret_files import SecretError, read_secret

Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Receiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """A configured receiver. `group_s`: how long a message that does not page waits for others to share its batch."""

    TOGETHER: ClassVar[BatchingMode] = BatchingMode.BURST
    LIFE_CYCLE: ClassVar[bool] = False  # it keeps each alert open until it is resolved
    REPEATS: ClassVar[bool] = False  # alerts expire there unless repeated
    APART: ClassVar[bool] = False  # it would take two alerts in one message for one

    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0  # for one attempt in total
    group_s: Seconds = 10.0
    rate: RateLimit = RateLimit()  # messages beyond it wait, and go as one
    quiet_hours: bool = True  # false: ignore quiet hours
    resolved: bool = True  # notify it when an incident is closed
    title: str = ""  # a Jinja2 template; empty: our text
    text: str = ""  # the same

    def __post_init__(self) -> None:
        for template in (self.title, self.text):
            check_template(template)

    @property
    def pace(self) -> DeliveryPacing:
        """Its pacing."""
        return DeliveryPacing(self.rate, self.TOGETHER, self.LIFE_CYCLE, self.APART)

    def envelope(self, batch: str, items: tuple[Delivery, ...], now: float) -> Envelope:
        """Build a batch with its text."""
        title, text = render_message_texts(self.title, self.text, items)
        return Envelope(batch, items, title, text, now)

    def send(self, envelope: Envelope) -> DeliveryAnswer:
        """Make one attempt, within `timeout_s`. Never raises for file, network or peer errors."""
        raise NotImplementedError


class HttpReceiver(Receiver, frozen=True, kw_only=True):
    """A receiver behind a URL. A secret URL belongs in a file."""

    url: str = ""  # either this
    url_file: str = ""  # or a file with the URL
    ca_file: str = ""  # CA of the server's certificate; empty: the system's

    def __post_init__(self) -> None:
        super().__post_init__()
        check_receiver_url(self.url, self.url_file)

    def address(self) -> str:
        """The URL.

        Raises:
            SecretError: its file cannot be used.
        """
        return read_receiver_url(self.url, self.url_file)

    def request(self, url: str, payload: Any, headers: dict[str, str] | None = None) -> HttpPostRequest:
        """Build a POST of JSON."""
        body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        return HttpPostRequest(url, body, {"content-type": "application/json", **(headers or {})}, self.ca_file)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """Build the request for a batch.

        Raises:
            SecretError: a file cannot be used.
        """
        raise NotImplementedError

    def send(self, envelope: Envelope) -> DeliveryAnswer:
        """Make one attempt."""
        try:
            request = self.compose(envelope)
        except SecretError as error:
            return DeliveryAnswer(False, str(error), refused=True)
        return send_http_post(request, self.timeout_s)


def check_receiver_url(url: str, url_file: str) -> None:
    """Check that a URL names one host and no password.

    Raises:
        ValueError: what is wrong; without the URL, which may be a secret.
    """
    if bool(url) == bool(url_file):
        raise ValueError("give exactly one of 'url' and 'url_file'")
    if url:
        _check_url(url)
        if "@" in urlsplit(url).netloc:
            raise ValueError("the URL contains a password; put the URL into a file and set 'url_file'")


def read_receiver_url(url: str, url_file: str) -> str:
    """Return the URL, or the content of its file.

    Raises:
        SecretError: the file cannot be used.
    """
    if url:
        return url
    found = read_secret(url_file)
    try:
        _check_url(found)
    except ValueError:
        raise SecretError(f"{url_file}: contains no URL that begins with http:// or https://") from None
    return found


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("a URL must begin with http:// or https:// and name a host")
    _ = parts.port  # raises ValueError for an invalid port


def truncate_text(text: str, characters_max: int) -> str:
    """Truncate the text to the receiver's limit, with a mark."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"

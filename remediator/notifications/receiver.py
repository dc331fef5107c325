"""What every kind of receiver has: its pace, its words, its time; and what those have that are reached by HTTP."""

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
    """One receiver as configured. `group_s`: how long a message that wakes nobody waits for others to go with it."""

    TOGETHER: ClassVar[BatchingMode] = BatchingMode.BURST
    LIFE_CYCLE: ClassVar[bool] = False  # it keeps each matter open until it is resolved
    REPEATS: ClassVar[bool] = False  # it forgets what is not said again and again
    APART: ClassVar[bool] = False  # two matters in one message would be taken for one

    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0  # for one attempt as a whole
    group_s: Seconds = 10.0
    rate: RateLimit = RateLimit()  # what is too much waits, and goes as one message
    quiet_hours: bool = True  # false: it has none
    resolved: bool = True  # it hears when an incident is over
    title: str = ""  # a Jinja2 template; none: our words
    text: str = ""  # the same

    def __post_init__(self) -> None:
        for template in (self.title, self.text):
            check_template(template)

    @property
    def pace(self) -> DeliveryPacing:
        """How it wants its messages."""
        return DeliveryPacing(self.rate, self.TOGETHER, self.LIFE_CYCLE, self.APART)

    def envelope(self, batch: str, items: tuple[Delivery, ...], now: float) -> Envelope:
        """A piece with its words."""
        title, text = render_message_texts(self.title, self.text, items)
        return Envelope(batch, items, title, text, now)

    def send(self, envelope: Envelope) -> DeliveryAnswer:
        """One attempt, within `timeout_s`. Never raises for what files, the network or the peer do."""
        raise NotImplementedError


class HttpReceiver(Receiver, frozen=True, kw_only=True):
    """A receiver behind a URL. One that is itself a secret stands in a file."""

    url: str = ""  # either this
    url_file: str = ""  # or a file that holds it
    ca_file: str = ""  # who signed the server's certificate; none: the system's

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
        """A POST of JSON."""
        body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        return HttpPostRequest(url, body, {"content-type": "application/json", **(headers or {})}, self.ca_file)

    def compose(self, envelope: Envelope) -> HttpPostRequest:
        """The request that carries a piece.

        Raises:
            SecretError: a file cannot be used.
        """
        raise NotImplementedError

    def send(self, envelope: Envelope) -> DeliveryAnswer:
        """One attempt."""
        try:
            request = self.compose(envelope)
        except SecretError as error:
            return DeliveryAnswer(False, str(error), refused=True)
        return send_http_post(request, self.timeout_s)


def check_receiver_url(url: str, url_file: str) -> None:
    """Whether one place is named, and no password with it.

    Raises:
        ValueError: what is wrong; without the URL, which may be a secret.
    """
    if bool(url) == bool(url_file):
        raise ValueError("give exactly one of 'url' and 'url_file'")
    if url:
        _check_url(url)
        if "@" in urlsplit(url).netloc:
            raise ValueError("the URL holds a password; put it into a file and name that under 'url_file'")


def read_receiver_url(url: str, url_file: str) -> str:
    """The URL, or what its file holds.

    Raises:
        SecretError: the file cannot be used.
    """
    if url:
        return url
    found = read_secret(url_file)
    try:
        _check_url(found)
    except ValueError:
        raise SecretError(f"{url_file}: holds no URL that begins with http:// or https://") from None
    return found


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("a URL must begin with http:// or https:// and name a host")
    _ = parts.port  # raises ValueError for a port that is none


def truncate_text(text: str, characters_max: int) -> str:
    """The text, or as much of it as a receiver takes, with a mark."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"

"""The node's client of the controller's HTTP API: six calls, and their errors."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from healthd.config import RemediatorConfig
from healthd.controller.http_client import HttpClient, HttpError, HttpResponse, TlsCredentials
from healthd.host import SHORTAGES
from vocabulary.messages.job_hazard import JobHazard
from vocabulary.messages.wire import (
    Enrolment,
    NewToken,
    Problem,
    ReceivedOrders,
    Report,
    ReportReply,
    WireError,
    decode_message,
    decode_orders,
    encode_message,
)
from vocabulary.order import OrderUpdate

TIMEOUT_S = 30.0
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.5, 30.0
DENIED_S = 60.0
RETRY_AFTER_S_MAX = 300.0  # limit for the controller's value; after more the node would count as unknown

T = TypeVar("T")


class ControllerError(Exception):
    """The controller did not accept or return what was requested."""


class ControllerUnreachable(ControllerError):
    """No answer, or a temporary error. Retry, after `retry_after_s` if the controller set it."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ControllerDenied(ControllerError):
    """The token is missing, unknown, or another node's. Only a person can change that."""


class RequestRejected(ControllerError):
    """The controller rejects this message as invalid or unwanted. Sending it again does not help.

    `finding` is the id of the rejected finding, if it named one.
    """

    def __init__(self, message: str, finding: str = "") -> None:
        super().__init__(message)
        self.finding = finding


_ENROLLING = threading.Lock()
_OWN = re.compile(r"ghd_[\w-]{43}", re.ASCII)


def jitter_delay(seconds: float, *, together: bool) -> float:
    """Return the delay with up to a tenth of jitter; any fraction of it after an outage, when a fleet comes back `together`.

    So nodes that reconnected at the same moment do not report at the same moment from then on.
    """
    return seconds * random.uniform(0.0 if together else 0.9, 1.0 if together else 1.1)  # noqa: S311 - jitter, no secret


class RetryBackoff:
    """The wait after a failure: doubling, with jitter so that a fleet does not return as one."""

    def __init__(self) -> None:
        self._next_s = BACKOFF_S_MIN

    def after(self, error: ControllerError) -> float:
        """Return the seconds until the next try."""
        if isinstance(error, (ControllerDenied, RequestRejected)):
            return DENIED_S
        pause_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._next_s = min(2 * self._next_s, BACKOFF_S_MAX)
        asked_s = error.retry_after_s if isinstance(error, ControllerUnreachable) else 0.0
        return asked_s + pause_s if asked_s else pause_s

    def reset(self) -> None:
        """Reset after a success."""
        self._next_s = BACKOFF_S_MIN


class ControllerClient:
    """One connection to the controller, kept open. For one thread."""

    def __init__(self, config: RemediatorConfig, node: str) -> None:
        self._config, self._node = config, node
        self._client = HttpClient(
            config.url, TlsCredentials(config.ca_file, config.certificate, config.certificate_key)
        )
        self._prefix = f"/v1/nodes/{quote(node)}"
        self._url = config.url.rstrip("/")
        self._base = f"{self._url}{self._prefix}"
        self._token_file = config.token_file

    def report(self, report: Report) -> ReportReply:
        """Report this node's state; the answer says which changes are durable there.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it was not taken.
        """
        return self.decode_answer(self._call("POST", "/report", encode_message(report)), ReportReply)

    def heartbeat(self, packed: bytes) -> ReportReply:
        """Report that nothing but the progress of ranks has changed since the last accepted report.

        Raises:
            RequestRejected: the controller needs a whole report.
            ControllerUnreachable, ControllerDenied: it was not taken.
        """
        headers = {"Content-Type": "application/msgpack"}
        return self.decode_answer(self._call("POST", "/heartbeat", packed, headers=headers), ReportReply)

    def orders(self, known: Sequence[str], wait_s: float) -> ReceivedOrders:
        """Return the open orders; waits up to `wait_s` for one that is not `known`.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: they could not be had.
        """
        query = "".join(f"&known={quote(order)}" for order in known)
        content = self._call("GET", f"/orders?wait_s={wait_s:g}{query}", b"", wait_s)
        try:
            return decode_orders(content)
        except WireError as error:
            raise self._unreadable(error) from error

    def answer(self, update: OrderUpdate) -> None:
        """Report an order's progress.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it was not taken.
        """
        self._call("POST", f"/orders/{quote(update.id, safe='')}", encode_message(update))

    def evidence(self, order: str, content: bytes) -> None:
        """Send the gzipped bundle that answers `order`; it is durable there on return.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it was not taken.
        """
        self._call("POST", f"/evidence/{quote(order, safe='')}", content, headers={"Content-Encoding": "gzip"})

    def hazard(self, job: str) -> JobHazard:
        """Return the current failure rate of a local job's nodes.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it could not be had.
        """
        return self.decode_answer(self._call("GET", f"/v1/hazard/{quote(job, safe='')}", b"", of_node=False), JobHazard)

    def cut_if_silent(self, patience_s: float) -> bool:
        """Abort a call whose answer has not begun within `patience_s`; return whether there was one.

        Callable from any thread.
        """
        return self._client.cut_if_silent(patience_s)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _call(
        self,
        method: str,
        path: str,
        body: bytes,
        wait_s: float = 0.0,
        *,
        headers: Mapping[str, str] | None = None,
        of_node: bool = True,
    ) -> bytes:
        path = self._prefix + path if of_node else path
        url = self._url + path.partition("?")[0]
        headers = {
            "Authorization": f"Bearer {self.read_token()}",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        try:
            answer = self._client.request(method, path, body, headers, wait_s + TIMEOUT_S)
        except HttpError as error:
            raise ControllerUnreachable(f"{url}: {error}") from error
        if 200 <= answer.status < 300:
            return answer.body
        raise make_controller_error(url, answer)

    def read_token(self) -> str:
        """Return this node's token, read each time: a new one takes effect without a restart.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: there is none, and none can be had.
        """
        if self._token_file is None:
            raise ControllerDenied("no token_file is configured; add remediator.token_file")
        self._enrol()
        try:
            token = self._token_file.read_text().strip()
        except OSError as error:
            if error.errno in SHORTAGES:  # temporary
                raise ControllerUnreachable(f"token_file {self._token_file}: {error.strerror}") from error
            raise ControllerDenied(f"token_file {self._token_file}: {error.strerror}") from error
        if not token.isascii() or not token.isprintable() or not token:
            raise ControllerDenied(f"token_file {self._token_file}: holds no token")
        return token

    def _enrol(self) -> None:
        """Obtain a permanent token with the join secret, if there is no token yet."""
        file, secret = self._config.token_file, self._config.enrol_token_file
        if file is None or secret is None or file.exists():
            return
        with _ENROLLING:  # both uplink threads start without a token
            if file.exists():
                return
            enrol_node(self._client, self._url, self._node, secret, file)

    def decode_answer(self, content: bytes, kind: type[T]) -> T:
        """Decode an answer of the controller.

        Raises:
            ControllerUnreachable: it cannot be read.
        """
        try:
            return decode_message(content, kind)
        except WireError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: WireError) -> ControllerUnreachable:
        return ControllerUnreachable(
            f"{self._base}: unreadable answer: {error}; check that this is a gpu-healthd controller"
        )


def enrol_node(client: HttpClient, url: str, node: str, secret_file: Path, token_file: Path) -> None:
    """Register a token made by this node, with a join secret.

    It is readable only by healthd's user, and on the disk before the request: if the answer is lost, the same request
    is repeated.

    Raises:
        ControllerUnreachable, ControllerDenied, RequestRejected: it was not accepted.
        ControllerDenied: also if a file cannot be read or written.
    """
    try:
        secret = secret_file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ControllerDenied(f"enrol_token_file {secret_file}: {error}") from error
    aside = token_file.with_name(f"{token_file.name}.new")
    try:
        wish = Enrolment(node, hashlib.sha256(_read_or_create_token(aside).encode()).hexdigest())
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        answer = client.request("POST", "/v1/enrol", encode_message(wish), headers, TIMEOUT_S)
        if answer.status != 200:
            raise make_controller_error(f"{url}/v1/enrol", answer)
        decode_message(answer.body, NewToken)
        aside.replace(token_file)
    except HttpError as error:
        raise ControllerUnreachable(f"{url}/v1/enrol: {error}") from error
    except WireError as error:
        raise ControllerUnreachable(
            f"{url}/v1/enrol: unreadable answer: {error}; check that this is a gpu-healthd controller"
        ) from error
    except OSError as error:
        raise ControllerDenied(
            f"token_file {token_file}: a new token cannot be stored beside it: {error.strerror}"
        ) from error


def _read_or_create_token(file: Path) -> str:
    """Return the token that this node made and that was not accepted yet, or a new one."""
    with contextlib.suppress(FileNotFoundError):
        kept = file.read_text(errors="replace").strip()
        if _OWN.fullmatch(kept):
            return kept
    made = f"ghd_{secrets.token_urlsafe(32)}"
    _write_token(file, made)
    return made


def _write_token(file: Path, token: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:  # noqa: PTH123 - for its mode
        out.write(f"{token}\n")
        out.flush()
        os.fsync(out.fileno())


def make_controller_error(url: str, answer: HttpResponse) -> ControllerError:
    """Return the error that an answer with this status means; `url` is where it came from."""
    try:
        problem = decode_message(answer.body, Problem)
        words = "; ".join(part for part in (problem.error, problem.detail, problem.todo) if part)
        finding = problem.finding
    except WireError:
        finding = ""
        words = answer.body[:200].decode(errors="replace")
    text = f"{url}: {answer.status}: {words}"
    if answer.status in (401, 403):
        return ControllerDenied(text)
    if answer.status in (408, 425, 429) or answer.status >= 500:
        asked = answer.headers.get("retry-after", "")
        return ControllerUnreachable(text, min(float(asked), RETRY_AFTER_S_MAX) if asked.isdecimal() else 0.0)
    return RequestRejected(text, finding)

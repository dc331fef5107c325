"""The node's side of the centre's HTTP interface: three calls, and the ways they fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from healthd.config import RemediatorConfig
from vocabulary.order import Order, OrderUpdate
from vocabulary.wire import OrdersReply, Problem, Report, ReportReply, WireError, decode, encode

if TYPE_CHECKING:
    import requests

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.5, 30.0
DENIED_S = 60.0

T = TypeVar("T")


class CentreError(Exception):
    """The centre did not take or give what was asked."""


class Unreachable(CentreError):
    """No answer, or one that says: later. Trying again is right."""


class Denied(CentreError):
    """The token is missing, unknown, or another node's. Only a person can change that."""


class Rejected(CentreError):
    """The centre understood, and says this very message is wrong or unwanted. Sending it again will not help."""


class Backoff:
    """How long to wait after a failure: doubling, with jitter so that a fleet does not return as one."""

    def __init__(self) -> None:
        self._next_s = BACKOFF_S_MIN

    def after(self, error: CentreError) -> float:
        """Seconds until the next try."""
        if isinstance(error, (Denied, Rejected)):
            return DENIED_S
        pause_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._next_s = min(2 * self._next_s, BACKOFF_S_MAX)
        return pause_s

    def reset(self) -> None:
        """It worked."""
        self._next_s = BACKOFF_S_MIN


class Centre:
    """One connection to the centre, kept open. For one thread."""

    def __init__(self, config: RemediatorConfig, node: str) -> None:
        import requests  # noqa: PLC0415 - 7 MiB that a node without a centre can do without

        self._requests = requests
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy meant for people must not see a node's token
        self._base = f"{config.url.rstrip('/')}/v1/nodes/{quote(node)}"
        self._token_file = config.token_file

    def report(self, report: Report) -> ReportReply:
        """Assert this node's state; the answer says which changes are durable there.

        Raises:
            Unreachable, Denied, Rejected: it was not taken.
        """
        return self._decoded(self._call("POST", "/report", encode(report)), ReportReply)

    def orders(self, known: Sequence[str], wait_s: float) -> tuple[Order, ...]:
        """The open orders; waits up to `wait_s` for one that is not `known`.

        Raises:
            Unreachable, Denied, Rejected: they could not be had.
        """
        query = "".join(f"&known={quote(order)}" for order in known)
        return self._decoded(self._call("GET", f"/orders?wait_s={wait_s:g}{query}", b"", wait_s), OrdersReply).orders

    def answer(self, update: OrderUpdate) -> None:
        """Say how far an order got.

        Raises:
            Unreachable, Denied, Rejected: it was not taken.
        """
        self._call("POST", f"/orders/{quote(update.id, safe='')}", encode(update))

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _call(self, method: str, path: str, body: bytes, wait_s: float = 0.0) -> bytes:
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        timeout = (CONNECT_TIMEOUT_S, wait_s + TIMEOUT_S)
        try:
            answer = self._session.request(
                method, self._base + path, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
        except self._requests.RequestException as error:
            raise Unreachable(f"{self._base}{path}: {error}") from error
        if 200 <= answer.status_code < 300:
            return answer.content
        raise _error(answer)

    def _token(self) -> str:
        """Read each time: a new token takes effect without a restart."""
        if self._token_file is None:
            raise Denied("no token_file is configured; add remediator.token_file")
        try:
            token = self._token_file.read_text().strip()
        except OSError as error:
            raise Denied(f"token_file {self._token_file}: {error.strerror}") from error
        if not token.isascii() or not token.isprintable() or not token:
            raise Denied(f"token_file {self._token_file}: holds no token")
        return token

    def _decoded(self, content: bytes, kind: type[T]) -> T:
        try:
            return decode(content, kind)
        except WireError as error:
            raise Unreachable(f"{self._base}: unreadable answer: {error}; is this a remediator?") from error


def _error(answer: requests.Response) -> CentreError:
    try:
        problem = decode(answer.content, Problem)
        words = "; ".join(part for part in (problem.error, problem.detail, problem.todo) if part)
    except WireError:
        words = answer.text[:200]
    text = f"{answer.url.partition('?')[0]}: {answer.status_code}: {words}"
    if answer.status_code in (401, 403):
        return Denied(text)
    if answer.status_code in (408, 425, 429) or answer.status_code >= 500:
        return Unreachable(text)
    return Rejected(text)

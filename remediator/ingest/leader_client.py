"""The ingest's client of the controller's API. It finds the leader among the replicas. Blocking; for any thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
import requests
from requests.adapters import HTTPAdapter

from remediator.ingest.ingest_config import IngestConfig
from remediator.model.message_batch import AllOrders, DeliveredMessage, MessageAnswer

CONNECT_S, ANSWER_S = 3.05, 40.0  # an answer takes up to 20 s while the database is slow
POOL = 72  # connections kept: one per worker, and those that check tokens


class LeaderUnavailable(Exception):
    """No replica took the request now. Retry later."""


class LeaderClient:
    """Calls whichever replica leads."""

    def __init__(self, config: IngestConfig) -> None:
        self._urls = [url.rstrip("/") for url in config.controllers]
        self._leader = 0
        self._token_file = Path(config.token_file)
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy, no .netrc
        self._session.verify = config.ca_file or True
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=POOL))

    def deliver(self, messages: Sequence[DeliveredMessage]) -> list[MessageAnswer]:
        """Deliver messages; returns their answers, in order.

        Raises:
            LeaderUnavailable: no replica took them.
        """
        content = msgspec.msgpack.encode(messages)
        response = self._call("POST", "/v1/reports", content, self._token(), "application/msgpack")
        try:
            answers = msgspec.msgpack.decode(self._require_success(response), type=list[MessageAnswer])
        except msgspec.DecodeError as error:
            raise LeaderUnavailable(f"{response.url}: unreadable answer: {error}") from error
        if len(answers) != len(messages):
            raise LeaderUnavailable(f"{response.url}: answers {len(answers)} of {len(messages)}")
        return answers

    def open_orders(self, known: str, wait_s: float) -> AllOrders:
        """Return the open orders of all nodes; waits up to `wait_s` for a version other than `known`.

        Raises:
            LeaderUnavailable: no replica gave them.
        """
        path = f"/v1/orders?wait_s={wait_s:g}&known={quote(known)}"
        response = self._call("GET", path, b"", self._token())
        try:
            return msgspec.json.decode(self._require_success(response), type=AllOrders)
        except msgspec.DecodeError as error:
            raise LeaderUnavailable(f"{response.url}: unreadable answer: {error}") from error

    def admits(self, node: str, token: str) -> bool:
        """Return whether the controller admits this token as the node's; asks with the token itself.

        Raises:
            LeaderUnavailable: no replica can tell.
        """
        response = self._call("GET", f"/v1/nodes/{quote(node, safe='')}/orders?wait_s=0", b"", token)
        if response.status_code in (401, 403):
            return False
        self._require_success(response)
        return True

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def _token(self) -> str:
        """Read the token each time: a new one takes effect without a restart."""
        try:
            return self._token_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise LeaderUnavailable(f"token_file {self._token_file}: {error}") from error

    def _call(self, method: str, path: str, content: bytes, token: str, kind: str = "") -> requests.Response:
        """Ask the last leader first, then each other replica; a standby answers 503."""
        headers = {"Authorization": f"Bearer {token}", **({"Content-Type": kind} if kind else {})}
        trouble = ""
        first = self._leader
        for offset in range(len(self._urls)):
            index = (first + offset) % len(self._urls)
            url = self._urls[index]
            try:
                response = self._session.request(
                    method,
                    url + path,
                    data=content,
                    headers=headers,
                    timeout=(CONNECT_S, ANSWER_S),
                    allow_redirects=False,
                )
            except (requests.RequestException, UnicodeError) as error:
                trouble = f"{url}: {error}"
                continue
            if response.status_code != 503:
                self._leader = index
                return response
            trouble = f"{url}: 503: {response.text[:200]}"
        raise LeaderUnavailable(trouble)

    @staticmethod
    def _require_success(response: requests.Response) -> bytes:
        if response.status_code != 200:
            raise LeaderUnavailable(f"{response.url}: {response.status_code}: {response.text[:200]}")
        return response.content

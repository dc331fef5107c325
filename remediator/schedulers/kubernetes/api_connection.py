"""The connection to one API server, with deadlines, a rate limit, and back-off while it is overloaded.

The official client library reads the configuration, refreshes credentials and pools connections; `api_objects` parses
objects, which needs a hundredth of the memory of the library's models.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

from remediator.schedulers.kubernetes.api_objects import ApiStatus
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML
CONNECT_S = 5.0
BUDGET = "DisruptionBudget"
BUSY = frozenset({429, 503, 504})
BUSY_WAIT_S = 1.0  # without a Retry-After
CHUNK = 65536


class ApiServerUnavailableError(Exception):
    """No answer, none in time, or an unusable one. The text is a sentence for operators."""


class ApiAnswer(msgspec.Struct, frozen=True):
    """The server's answer."""

    status: int
    body: bytes = b""

    @property
    def good(self) -> bool:
        """Whether it did what was requested."""
        return 200 <= self.status < 300

    @property
    def of_a_budget(self) -> bool:
        """Whether a disruption budget refused: it has the same status as an overloaded server."""
        return any(cause.reason == BUDGET for cause in self.refusal.causes)

    @property
    def refusal(self) -> ApiStatus:
        """Why it refused, in its own words; of an unknown form only the status."""
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(self.body, type=ApiStatus)
        return ApiStatus(code=self.status, message=f"HTTP {self.status}")


class ApiConnection:
    """Calls to one API server, from any thread."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._client: Any = None
        self._tokens = 2 * options.calls_per_s
        self._filled_at = time.monotonic()
        self._closed_until = 0.0

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        *,
        accept: str = JSON,
    ) -> ApiAnswer:
        """Call once, and retry while the server is overloaded, until the deadline.

        Raises:
            ApiServerUnavailableError: there was no answer within `deadline_s`.
        """
        deadline = time.monotonic() + self._options.deadline_s
        while True:
            self._wait_for_turn(deadline)
            headers = {"Accept": accept, "Content-Type": content_type}
            data = None if body is None else json.dumps(body).encode()
            left = deadline - time.monotonic()
            if left <= 0:  # this machine slept for longer than requested
                raise ApiServerUnavailableError(
                    f"no request slot within {self._options.deadline_s:g} s: this machine is too busy"
                )
            with self._request(method, path, query, headers, data, left) as response:
                answer = ApiAnswer(response.status, _read_within_deadline(response, deadline, self._options.deadline_s))
                if response.status not in BUSY or answer.of_a_budget:
                    return answer
                self._busy(response, answer, deadline)

    @contextlib.contextmanager
    def stream(self, path: str, query: Mapping[str, str], quiet_s: float) -> Iterator[urllib3.BaseHTTPResponse]:
        """Open a streaming response; reading it raises urllib3's HTTPError after `quiet_s` without a byte.

        Raises:
            ApiServerUnavailableError: there was no answer within `deadline_s`.
        """
        deadline = time.monotonic() + self._options.deadline_s
        self._wait_for_turn(deadline)
        with self._request("GET", path, query, {"Accept": JSON}, None, quiet_s) as response:
            if response.status in BUSY:
                self._busy(
                    response, ApiAnswer(response.status, _read_within_deadline(response, deadline, quiet_s)), deadline
                )
            yield response

    def _busy(self, response: urllib3.BaseHTTPResponse, answer: ApiAnswer, deadline: float) -> None:
        """Delay all calls until the server accepts them again."""
        word = response.headers.get("Retry-After", "")
        wait = float(word) if word.isascii() and word.isdigit() else BUSY_WAIT_S
        with self._lock:
            self._closed_until = max(self._closed_until, time.monotonic() + wait)
        if time.monotonic() + wait >= deadline:
            raise ApiServerUnavailableError(
                f"the API server is too busy: {answer.refusal.message} (asks to wait {wait:g} s)"
            )

    def _wait_for_turn(self, deadline: float) -> None:
        with self._lock:
            now, rate = time.monotonic(), self._options.calls_per_s
            self._tokens = min(2 * rate, self._tokens + (now - self._filled_at) * rate)
            self._filled_at = now
            wait = max(self._closed_until - now, -min(0.0, self._tokens - 1) / rate)
            if now + wait >= deadline:
                raise ApiServerUnavailableError(
                    f"no request slot within {self._options.deadline_s:g} s: the API server limits the request rate"
                )
            self._tokens -= 1
        if wait > 0:
            time.sleep(wait)

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: dict[str, str],
        body: bytes | None,
        timeout_s: float,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        client = self._known()
        secret = client.configuration.auth_settings().get("BearerToken", {}).get("value")
        if secret:
            headers["Authorization"] = secret
        url = client.configuration.host.rstrip("/") + path
        if query:
            url += "?" + urlencode(query)
        connect_s = min(CONNECT_S, timeout_s, self._options.deadline_s)
        response: urllib3.BaseHTTPResponse | None = None
        try:
            response = client.rest_client.pool_manager.request(
                method,
                url,
                headers=headers,
                body=body,
                timeout=urllib3.Timeout(connect=connect_s, read=timeout_s),
                preload_content=False,
                retries=False,
                redirect=False,
            )
            yield response
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiServerUnavailableError(
                f"the API server at {client.configuration.host} cannot be reached: {error}"
            ) from error
        finally:
            if response is not None:
                response.close()
                response.release_conn()

    def _known(self) -> Any:
        """Return the library's client, created on first use: a missing file is reported, and may appear later."""
        with self._lock:
            if self._client is None:
                self._client = _build_client(self._options)
            return self._client


def _build_client(options: KubernetesOptions) -> Any:
    try:
        library = importlib.import_module("kubernetes")
    except ImportError as error:
        raise ApiServerUnavailableError(
            "the package kubernetes is missing: pip install 'gpu-healthd[kubernetes]'"
        ) from error
    configuration = library.client.Configuration()
    try:
        if options.kubeconfig:
            library.config.load_kube_config(
                options.kubeconfig, options.context or None, client_configuration=configuration, persist_config=False
            )
        else:
            library.config.load_incluster_config(client_configuration=configuration)
    except (library.config.ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
        where = options.kubeconfig or "the service account of this pod"
        raise ApiServerUnavailableError(f"no Kubernetes configuration from {where}: {error}") from error
    configuration.connection_pool_maxsize = 16
    return library.client.ApiClient(configuration)


def _read_within_deadline(response: urllib3.BaseHTTPResponse, deadline: float, allowed_s: float) -> bytes:
    parts = []
    for part in response.stream(CHUNK):
        parts.append(part)
        if time.monotonic() > deadline:
            raise ApiServerUnavailableError(f"the API server did not finish its answer within {allowed_s:g} s")
    return b"".join(parts)

"""One HTTP request with limits on total time, response size and target (no redirects).

Only name resolution keeps the system's own limit.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import socket
import ssl
import time
import urllib.request
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from remediator.notifications.connection_deadline import connect_before_deadline, shut_down_after
from remediator.notifications.envelope import DeliveryAnswer

PROXY_ANSWER_MAX = 8192
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_MEANS = {
    400: "the receiver rejects this message format",
    401: "the key is not accepted",
    403: "the key or the URL is not accepted",
    404: "not found; the webhook may have been removed",
    410: "the webhook was removed",
    413: "the message is too large",
    429: "too many messages",
}


class HttpPostRequest(msgspec.Struct, frozen=True):
    """What is sent where. The URL may be a secret."""

    url: str
    body: bytes
    headers: dict[str, str]
    ca_file: str = ""


def send_http_post(request: HttpPostRequest, timeout_s: float) -> DeliveryAnswer:
    """Send it and wait for the response, `timeout_s` seconds in total. Never raises for network or peer errors."""
    host = url_host(request.url)
    ends = time.monotonic() + timeout_s
    late = f"{host}: no answer within {timeout_s:g} s"
    try:
        with (
            contextlib.closing(_connect_to_url(urlsplit(request.url), ends)) as raw,
            shut_down_after(raw, ends - time.monotonic()) as cut,
        ):
            try:
                status, retry_after = _exchange_http(raw, request)
            except (OSError, http.client.HTTPException):
                if not cut.is_set():
                    raise
            if cut.is_set():  # headers that were cut off look like a complete response
                return DeliveryAnswer(False, late, down=True)
            return _answer_from_status(host, status, retry_after)
    except TimeoutError:
        return DeliveryAnswer(False, late, down=True)
    except ssl.SSLError as error:
        return DeliveryAnswer(False, f"{host}: TLS: {error.reason or type(error).__name__}", down=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return DeliveryAnswer(False, f"{host}: {getattr(error, 'strerror', None) or type(error).__name__}", down=True)


def url_host(url: str) -> str:
    """Return the host of a URL: path and user info may be secret and are never logged."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _answer_from_status(host: str, status: int, retry_after: str) -> DeliveryAnswer:
    if 200 <= status < 300:
        return DeliveryAnswer(True, f"{host}: status {status}")
    if 300 <= status < 400:
        words = f"{host}: status {status}, moved; redirects are not followed, configure the new URL"
        return DeliveryAnswer(False, words, refused=True)
    means = f", {_MEANS[status]}" if status in _MEANS else ""
    transient = status in _TRANSIENT or status >= 500
    return DeliveryAnswer(
        False,
        f"{host}: status {status}{means}",
        retry_after_s=_parse_retry_after(retry_after),
        down=transient,
        refused=not transient,
    )


def _parse_retry_after(retry_after: str) -> float | None:
    """Parse the header's value: seconds, or a date."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None


def _exchange_http(raw: socket.socket, request: HttpPostRequest) -> tuple[int, str]:
    url = urlsplit(request.url)
    connection = http.client.HTTPConnection(url.netloc.rpartition("@")[2])
    connection.sock = _wrap_tls(raw, url, request.ca_file) if url.scheme == "https" else raw
    path = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
    if url.scheme == "http" and _environment_proxy(url):
        path = request.url
    headers = {"user-agent": "gpu-healthd", **request.headers}
    if url.username:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    try:
        connection.request("POST", path, request.body, headers)
        response = connection.getresponse()  # its body is not needed and never read
        return response.status, (response.getheader("retry-after") or "").strip()
    finally:
        connection.close()


def _wrap_tls(raw: socket.socket, url: SplitResult, ca_file: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=ca_file or None)
    return context.wrap_socket(raw, server_hostname=url.hostname)


def _environment_proxy(url: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for this host."""
    named = urllib.request.getproxies_environment().get(url.scheme)
    if not named or urllib.request.proxy_bypass(url.hostname or ""):
        return None
    return urlsplit(named if "//" in named else f"http://{named}")


def _connect_to_url(url: SplitResult, ends: float) -> socket.socket:
    if not url.hostname:
        raise ValueError("no host")
    proxy = _environment_proxy(url)
    port = url.port or (443 if url.scheme == "https" else 80)
    if proxy is None:
        return connect_before_deadline(url.hostname, port, ends)
    raw = connect_before_deadline(proxy.hostname or "", proxy.port or 3128, ends)
    if url.scheme == "https":
        try:
            with shut_down_after(raw, ends - time.monotonic()):
                _open_proxy_tunnel(raw, f"{url.hostname}:{port}")
        except OSError:
            raw.close()
            raise
    return raw


def _open_proxy_tunnel(raw: socket.socket, target: str) -> None:
    raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = raw.recv(1)
        answer += byte
        if not byte or len(answer) > PROXY_ANSWER_MAX:
            raise ConnectionError("the proxy did not answer")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        raise ConnectionError("the proxy refused the connection")

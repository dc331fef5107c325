"""Where a node's healthd answers local clients (preflight, the launcher, commands), how they call it, and when an answer is stale.

The call uses only the lightest modules of the standard library: an HTTP client would double the run time of a check.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping

SOCKET = "/run/gpu-healthd/healthd.sock"  # unless HEALTHD_SOCKET or --socket overrides it
ANSWER_BYTES_MAX = 1 << 20
STALE_S = 5.0  # healthd renews its verdict every second: an older one is stale


class NoResponseError(Exception):
    """No usable response. The message names the socket, and says what happened and what to check."""


def call_daemon(
    path: str, page: str, deadline_s: float, document: bytes | None = None, bytes_max: int = ANSWER_BYTES_MAX
) -> tuple[int, bytes]:
    """Get a page from healthd's socket, or post a JSON document to it; return status and body.

    It speaks HTTP/1.0, in which the end of the connection ends the body.

    Raises:
        NoResponseError: no answer in time, or none in HTTP, or with more than `bytes_max` bytes.
    """
    until, received = time.monotonic() + deadline_s, bytearray()
    request = f"GET {page} HTTP/1.0\r\n\r\n"
    if document is not None:
        request = f"POST {page} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(document)}\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(deadline_s)
            connection.connect(path)
            with contextlib.suppress(BrokenPipeError):  # refused before it was read whole: the response says why
                connection.sendall(request.encode() + (document or b""))
            while len(received) <= bytes_max and (data := connection.recv(1 << 16)):
                received += data
                connection.settimeout(max(0.001, until - time.monotonic()))
    except TimeoutError:
        raise NoResponseError(f"{path}: no response within {deadline_s:g} s; check whether healthd is stuck") from None
    except OSError as error:
        raise NoResponseError(f"{path}: {error.strerror or error}; check that healthd is running") from None
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    status = head.split(None, 2)[1:2]
    if len(received) > bytes_max or not head.startswith(b"HTTP/") or not b"".join(status).isdigit():
        what = head.partition(b"\r\n")[0][:100].decode(errors="replace") or "an empty response"
        raise NoResponseError(f"{path}: {what}; check that this is healthd's socket")
    return int(status[0]), body


def verdict_age_s(document: Mapping[str, object]) -> float:
    """Return the age that healthd states, by a monotonic clock; infinite if the verdict states none."""
    age_s = document.get("age_s")
    return age_s if isinstance(age_s, int | float) and age_s >= 0 else float("inf")

"""A deadline for a whole connection, from the first attempt to connect on.

The libraries' timeouts apply between bytes, so a slow peer can block them for hours; here a timer shuts the connection
down, also during a handshake. And they restart for every address of a name; here all addresses share one deadline.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")


def connect_before_deadline(host: str, port: int, ends: float) -> socket.socket:
    """Connect to the first address of `host` that answers, before `ends` (monotonic seconds).

    Later reads are limited to the remaining time too. Only name resolution keeps the system's own limit.

    Raises:
        OSError: no address answers; TimeoutError after the deadline.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    raw = connect_first_address(
        list(addresses), ends, lambda known, seconds: _connect_address(*known, seconds), time.monotonic
    )
    raw.settimeout(max(0.001, ends - time.monotonic()))
    return raw


def connect_first_address(
    addresses: Sequence[T], ends: float, connect: Callable[[T, float], S], monotonic: Callable[[], float]
) -> S:
    """Return `connect`'s result for the first address that works, with a time limit for each.

    Each gets a share of the remaining time, so that a dead first one leaves time for the others.
    """
    last: OSError = TimeoutError()
    for number, address in enumerate(addresses):
        left = ends - monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            return connect(address, left / (len(addresses) - number))
        except OSError as error:
            last = error
    raise last


def _connect_address(family: int, address: Any, seconds: float) -> socket.socket:
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        raw.settimeout(seconds)
        raw.connect(address)
    except OSError:
        raw.close()
        raise
    return raw


@contextlib.contextmanager
def shut_down_after(raw: socket.socket, seconds: float) -> Iterator[threading.Event]:
    """Shut the connection down after so many seconds; the event says that it happened.

    Uses a duplicate, because TLS detaches the socket from its owner.
    """
    spare, cut = raw.dup(), threading.Event()

    def shut() -> None:
        cut.set()
        with contextlib.suppress(OSError):
            spare.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, seconds), shut)
    timer.daemon = True
    timer.start()
    try:
        yield cut
    finally:
        timer.cancel()
        timer.join()
        spare.close()

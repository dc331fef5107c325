"""A bound for a whole conversation.

The libraries' timeouts count from one byte to the next, so a peer that drips keeps them waiting for hours; here a timer
shuts the connection down, also in the middle of a handshake.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def cut_off(raw: socket.socket, seconds: float) -> Iterator[threading.Event]:
    """Shut the connection down after so many seconds; the event says that it happened.

    Works on a duplicate, because TLS takes the socket itself away from its owner.
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

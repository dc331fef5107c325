"""One connection to the launcher's rendezvous."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from healthd.trainer.rendezvous_client import take_messages

SEND_SECONDS = 2.0  # messages are small: whoever takes none for so long is gone
_ARRIVAL_BYTES_MAX = 4096


class MemberConnection:
    """`member` is None until the process has shown the token; then `port` is that of the store it serves."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        connection.settimeout(SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.host = connection, host
        self.member: int | None = None
        self.port = 0
        self._buffer = bytearray()

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages that have come, and whether the connection goes on: it ends with garbage as with the process."""
        try:
            data = self.connection.recv(1 << 16)
            self._buffer += data
            if self.member is None and len(self._buffer) > _ARRIVAL_BYTES_MAX:
                return [], False
            return take_messages(self._buffer), bool(data)
        except (OSError, ValueError, RecursionError):
            return [], False

    def send(self, line: bytes) -> None:
        """Send a message. Where that fails, part of it may be out: the connection's end is heard, and tells that the member is gone."""
        try:
            self.connection.sendall(line)
        except OSError:
            self.end(socket.SHUT_RDWR)

    def end(self, how: int) -> None:
        """Shut down one or both directions."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(how)

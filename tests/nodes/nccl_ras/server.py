"""A server that speaks the protocol of NCCL's RAS clients, written from its documentation; or only pretends to.

Commands are lines, in any case: CLIENT PROTOCOL n → SERVER PROTOCOL n; TIMEOUT s → OK; SET FORMAT f → OK; anything else
→ ERROR: …. STATUS and VERBOSE STATUS are answered by the state of the whole job, and end the connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

FLOOD = b'{"communicators": [' + b"[]," * 20_000


class RasServer:
    """Serves `status()` at localhost. `manner`: proper, old (text only), silent, closing, flooding or dripping.

    Made in the network namespace of the calling thread.
    """

    def __init__(self, status: Callable[[], bytes], manner: str = "proper", port: int = 0) -> None:
        self._status = status
        self.manner = manner
        self.commands: list[str] = []
        self._stopped = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> RasServer:  # noqa: PYI034 - Self came with Python 3.11
        """Start happens on creation."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            for line in lines:
                command = line.decode().strip()
                self.commands.append(command)
                if self.manner == "silent":
                    self._stopped.wait(60)
                    return
                if command.upper() in ("STATUS", "VERBOSE STATUS"):
                    self._send_status(connection)
                    return
                connection.sendall(self._reply(command).encode())

    def _reply(self, command: str) -> str:
        words = command.upper().split()
        if words[:2] == ["CLIENT", "PROTOCOL"]:
            return "SERVER PROTOCOL 2\n"
        if words[:1] == ["TIMEOUT"] or (words[:2] == ["SET", "FORMAT"] and self.manner != "old"):
            return "OK\n"
        return f"ERROR: Unknown command {command}\n"

    def _send_status(self, connection: socket.socket) -> None:
        if self.manner == "closing":
            connection.sendall(self._status()[:-100])
        elif self.manner == "flooding":
            while not self._stopped.is_set():
                connection.sendall(FLOOD)
        elif self.manner == "dripping":
            for byte in self._status():
                if self._stopped.wait(0.5):
                    return
                connection.sendall(bytes([byte]))
        else:
            connection.sendall(self._status())

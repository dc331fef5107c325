"""Notifies systemd: ready, alive, stopping (sd_notify(3)). Does nothing without systemd."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """The socket that systemd names in the environment of a `Type=notify` service."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watched &= environment.get("WATCHDOG_USEC", "0") != "0"
        self._socket: socket.socket | None = None
        if self._address:  # kept open: if no descriptor were free, systemd would miss the heartbeat and kill healthd
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)  # systemd may be busy; the next round notifies it

    def ready(self) -> None:
        """Notify that healthd answers and all collectors run."""
        self._tell("READY=1")

    def alive(self, status: str) -> None:
        """Notify that the main loop runs; call about once a second. `systemctl status` shows `status`."""
        self._tell(f"STATUS={status}" + ("\nWATCHDOG=1" if self._watched else ""))

    def stopping(self) -> None:
        """Notify that healthd is stopping; the last message."""
        self._tell("STOPPING=1")
        if self._socket is not None:
            self._socket.close()

    def _tell(self, text: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(text.encode(), self._address)

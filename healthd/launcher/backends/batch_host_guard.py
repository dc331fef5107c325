"""Keeps a `batch_host_watcher` on another node of the job, for as long as the launcher runs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from healthd.launcher import stderr_writer
from healthd.launcher.backends.batch_host_watcher import END

POLL_SECONDS = 0.5
RESTART_SECONDS, RESTART_SECONDS_MAX = 5.0, 300.0
SHORT_SECONDS = 60.0  # a watcher that ends sooner has failed
FAILURES_SHOWN = 3
CONNECTIONS_MAX = 4  # only the watcher connects; older connections may be those of nodes that are lost
END_SECONDS = 5.0

StartWatcher = Callable[[str, int], "subprocess.Popen[bytes]"]  # on a node, with the port that it connects to


class BatchHostGuard:
    """A context manager."""

    def __init__(self, start: StartWatcher, other_nodes: Callable[[], Sequence[str]]) -> None:
        """Prepare.

        Args:
            start: starts a watcher; raises OSError.
            other_nodes: the job's nodes besides this one, as they are now.
        """
        self._start, self._other_nodes = start, other_nodes
        self._connections: list[socket.socket] = []
        self._watcher: subprocess.Popen[bytes] | None = None
        self._started_at = self._start_at = time.monotonic()
        self._starts = self._failures = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="batch-host-guard", daemon=True)

    def __enter__(self) -> None:
        """Listen, and start the watcher in the background."""
        self._server = socket.create_server(("", 0))
        self._server.settimeout(POLL_SECONDS)
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell the watcher that the launcher ends, and end it."""
        self._stopping.set()
        self._thread.join(END_SECONDS)
        for connection in self._connections:
            with contextlib.suppress(OSError), connection:
                connection.sendall(END)
        self._server.close()
        if self._watcher is not None:
            self._watcher.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._watcher.wait(END_SECONDS)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._keep_running()
            with contextlib.suppress(OSError):  # a timeout, or a connection that ended before it was taken
                connection, _ = self._server.accept()
                connection.setblocking(False)
                self._connections.append(connection)
            while len(self._connections) > CONNECTIONS_MAX:
                self._connections.pop(0).close()

    def _keep_running(self) -> None:
        """Start a watcher if there is none, on the next node; after each failure the wait is longer."""
        now = time.monotonic()
        if self._watcher is not None and self._watcher.poll() is not None:
            self._watcher = None
            self._note_end(now, failed=now - self._started_at < SHORT_SECONDS)
        if self._watcher is not None or now < self._start_at:
            return
        nodes = self._other_nodes()
        if not nodes:
            self._start_at = now + RESTART_SECONDS_MAX
            return
        try:
            self._watcher = self._start(nodes[self._starts % len(nodes)], self._server.getsockname()[1])
        except OSError:
            self._note_end(now, failed=True)
        self._started_at = now
        self._starts += 1

    def _note_end(self, now: float, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        self._start_at = now + min(RESTART_SECONDS * 2.0 ** min(self._failures, 16), RESTART_SECONDS_MAX)
        if self._failures == FAILURES_SHOWN:
            stderr_writer.write_launcher_line(
                "no process can be kept on another node to watch this one; if this node fails, run scontrol requeue yourself"
            )

"""The least that things of our kind cost on this machine: a line of the kernel log to a bare reader, a commit, an HTTP request, an interpreter.

What a budget takes is told beside these, from the same run: they move with the machine as it does.
"""

from __future__ import annotations

import http.client
import os
import re
import select
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KMSG = Path("/dev/kmsg")
GIVEN_UP_S = 5.0
BETWEEN_S = 0.023  # no multiple of any timer's period


def kmsg_usable() -> bool:
    """Whether we may read and write the machine's kernel log."""
    return os.access(KMSG, os.R_OK | os.W_OK)


def kernel_lines(count: int, commit_in: Path | None = None) -> list[float]:
    """Seconds from writing a line to the kernel's log until a bare epoll reader has it; with `commit_in` until a bare SQLite has committed it there.

    Raises:
        TimeoutError: the line never came.
    """
    reader = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    database = _database(commit_in) if commit_in else None
    try:
        os.lseek(reader, 0, os.SEEK_END)
        with select.epoll() as poller:
            poller.register(reader, select.EPOLLIN)
            return [_one_line(reader, poller, database, f"bench-bare {time.time_ns()}") for _ in range(count)]
    finally:
        os.close(reader)
        if database is not None:
            database.close()


def _one_line(reader: int, poller: select.epoll, database: sqlite3.Connection | None, text: str) -> float:
    time.sleep(BETWEEN_S)
    while poller.poll(0):  # so that it waits to be woken, as a reader does that has read everything
        _record(reader)
    began = time.perf_counter()
    with KMSG.open("wb", buffering=0) as writer:
        writer.write(f"<4>{text}\n".encode())
    while time.perf_counter() - began < GIVEN_UP_S:
        poller.poll(GIVEN_UP_S)
        if text.encode() in _record(reader):
            if database is not None:
                database.execute("insert into lines values (?)", (text,))
            return time.perf_counter() - began
    raise TimeoutError("a line written to /dev/kmsg never came back")


def _record(reader: int) -> bytes:
    """The next one; nothing if others wrote so much that it was overwritten."""
    try:
        return os.read(reader, 8192)
    except BrokenPipeError:
        return b""


def _database(folder: Path) -> sqlite3.Connection:
    """As the outbox is: a write-ahead log, each commit synchronised to the disk."""
    database = sqlite3.connect(folder / "bare.db", isolation_level=None)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = full")
    database.execute("create table lines (text)")
    return database


class _Ok(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@contextmanager
def _server() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Ok)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def http_exchanges(count: int) -> list[float]:
    """Seconds of a request on a connection that is kept, to the standard library's own server with nothing to do."""
    with _server() as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVEN_UP_S)

        def ask() -> None:
            connection.request("GET", "/")
            connection.getresponse().read()

        found = time_repeats(ask, count)
        connection.close()
    return found


def time_command(argv: list[str], count: int, env: dict[str, str] | None = None) -> list[float]:
    """Seconds of a command from its start to its end."""
    return time_repeats(lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=env), count)


def time_repeats(deed: Callable[[], object], count: int) -> list[float]:
    """Seconds of each of so many runs of it."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        deed()
        found.append(time.perf_counter() - began)
    return found


def interpreters_mib(count: int) -> float:
    """MiB resident of so many Python processes that do nothing, added up as a sum over processes is."""
    resident = 0
    for _ in range(count):
        with subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            resident += int(found[1]) if found else 0
            process.communicate(b"\n")
    return resident / 1024


def committed_lines(count: int) -> list[float]:
    """`kernel_lines` with a commit, in a folder that goes."""
    with tempfile.TemporaryDirectory(prefix="bench-bare-") as folder:
        return kernel_lines(count, Path(folder))

"""Asks the RAS service of a process's network namespace for the state of its job. May hang: only for a child.

The service speaks lines over TCP: CLIENT PROTOCOL, TIMEOUT, SET FORMAT, each answered at once, then VERBOSE STATUS,
whose answer ends with the connection. One query makes the RAS threads of all processes of the job report.
"""

from __future__ import annotations

import ctypes
import os
import time

PROTOCOL = 2
COLLECT_S = 2  # how long the service waits for processes that do not answer
LINE_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 16 << 20  # 4096 ranks in five communicators each
_CLONE_NEWNET = 0x40000000


class RasRefused(Exception):
    """Somebody listens there, but gives no status as JSON: an NCCL before 2.28.7, or no NCCL."""


def query_ras(address: tuple[str, int], within_s: float) -> bytes:
    """Return the JSON status of the job that listens there.

    Raises:
        OSError: nobody listens, or the answer does not end in time.
        RasRefused: the answer is no status, or too long.
    """
    import socket  # noqa: PLC0415 - half a megabyte that nodes without a job never need

    until = time.monotonic() + within_s
    with socket.create_connection(address, within_s) as connection:
        rest = b""
        for command, expected in (
            (f"CLIENT PROTOCOL {PROTOCOL}", b"SERVER PROTOCOL "),
            (f"TIMEOUT {COLLECT_S}", b"OK"),
            ("SET FORMAT json", b"OK"),
        ):
            connection.sendall(f"{command}\n".encode())
            while b"\n" not in rest:
                rest += _receive(connection, until)
                if len(rest) > LINE_BYTES_MAX:
                    raise RasRefused(f"{command}: a line without end")
            line, _, rest = rest.partition(b"\n")
            if not line.startswith(expected):
                raise RasRefused(f"{command}: {line[:100].decode(errors='replace')}")
        connection.sendall(b"VERBOSE STATUS\n")
        answer = bytearray(rest)
        while data := _receive(connection, until, ended=b""):
            answer += data
            if len(answer) > ANSWER_BYTES_MAX:
                raise RasRefused(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(answer)


def _receive(connection: socket.socket, until: float, ended: bytes | None = None) -> bytes:  # type: ignore[name-defined]  # noqa: F821
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no complete answer in time")
    connection.settimeout(left_s)
    data = connection.recv(1 << 16)
    if not data and ended is None:
        raise ConnectionError("the connection was closed early")
    return bytes(data)


def is_local_address(host: str) -> bool:
    """Return whether a network address belongs to this network namespace; an empty one would be any."""
    import socket  # noqa: PLC0415 - same

    if not host:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return True


def enter_network_namespace(path: str) -> None:
    """Move this process into a network namespace, unless it is in it; needs root.

    Raises:
        OSError: it does not exist, or may not be entered.
    """
    if os.stat(path).st_ino == os.stat("/proc/self/ns/net").st_ino:  # noqa: PTH116 - the child loads no pathlib
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET):  # the type as well: systemd's RestrictNamespaces= demands it
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)

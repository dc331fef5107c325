# Descriptors and open flags are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH118
"""Asks trainers for their stacks on the sockets beside their pages, all at once and within one deadline.

A trainer is not trusted: the socket must be its user's and no link, the process that listens must be the one that the
page names, nothing here blocks, and an answer has a limited size.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import stat
import struct
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.stack_socket import stack_socket_name

ANSWER_BYTES_MAX = 256 << 10
_CHUNK = 64 << 10
_CREDENTIALS = struct.Struct("3i")


class RankProcess(NamedTuple):
    """A rank's process, and the user that its page belongs to."""

    pid: int
    uid: int


class StackQuestion(NamedTuple):
    """What to ask which process: a handler of torch's worker server, with its parameters."""

    process: RankProcess
    handler: str


def ask_processes(directory: str, questions: Collection[StackQuestion], seconds: float) -> dict[StackQuestion, bytes]:
    """Return the answers that arrived whole within `seconds`; who does not answer, or answers too much, has none."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        connected: dict[StackQuestion, int] = {}
        for question in questions:
            with contextlib.suppress(OSError, ValueError):
                connection = stack.enter_context(_connect(directory, question.process))
                connection.send(_make_request(question.handler))  # fits into the buffer of a new connection
                connected[question] = connection.fileno()
        whole = drain_descriptors(connected, deadline)
    answers = {question: _read_body(content) for question, content in whole.items()}
    return {question: body for question, body in answers.items() if body is not None}


def _connect(directory: str, process: RankProcess) -> socket.socket:
    """Return a connection to that very process.

    Raises:
        OSError: it has no socket, or does not accept now.
        ValueError: the socket is not its own.
    """
    path = os.path.join(directory, stack_socket_name(process.pid, process_start(process.pid) or 0))
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != process.uid:
            raise ValueError(f"{path} is not a socket of user {process.uid}")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            connection.connect(f"/proc/self/fd/{descriptor}")  # the file that was checked, whatever the name is now
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _ = _CREDENTIALS.unpack(told)
            if (pid, uid) != process:
                raise ValueError(f"pid {pid} of user {uid} listens, not {process}")
            undo.pop_all()
    finally:
        os.close(descriptor)
    return connection


def _make_request(handler: str) -> bytes:
    head = f"POST /handler/{handler} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


def _read_body(answer: bytes) -> bytes | None:
    head, separator, body = answer.partition(b"\r\n\r\n")
    return body if separator and head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")) else None


def drain_descriptors(descriptors: Mapping[StackQuestion, int], deadline: float) -> dict[StackQuestion, bytes]:
    """Read descriptors, which must not block, to their ends; return those that ended in time and within the limit."""
    content = {question: bytearray() for question in descriptors}
    whole: dict[StackQuestion, bytes] = {}
    with selectors.DefaultSelector() as selector:
        for question, descriptor in descriptors.items():
            selector.register(descriptor, selectors.EVENT_READ, question)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for question, descriptor in _ready(selector.select(left)):
                try:
                    chunk = os.read(descriptor, _CHUNK)
                except BlockingIOError:
                    continue
                except OSError:
                    selector.unregister(descriptor)
                    continue
                content[question] += chunk
                if chunk and len(content[question]) <= ANSWER_BYTES_MAX:
                    continue
                selector.unregister(descriptor)
                if not chunk:
                    whole[question] = bytes(content[question])
    return whole


def _ready(events: Iterable[tuple[selectors.SelectorKey, int]]) -> Iterable[tuple[StackQuestion, int]]:
    return [(key.data, key.fd) for key, _ in events]

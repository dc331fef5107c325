"""Answers short HTTP requests on several listeners in one thread, even under slow or flooding clients.

Serves one request per connection. Time, size and number of connections are bounded for every client. At a bound, the
newest connection is accepted and the oldest of the client with the most connections is closed: a well-behaved request
completes within milliseconds. Root and healthd's user have reserved places. One short-lived thread makes slow answers,
for trusted peers only.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from healthd.host import SHORTAGES
from healthd.http_server.http_message import BadRequest, Reply, Request, problem_reply, read_head, render_reply
from healthd.http_server.http_worker import Worker

ACCEPTS_PER_TURN = 32
ACCEPT_PAUSE_S = 0.5
DRAINED_BYTES_MAX = 16 << 20
JOIN_S = 2.0
BACKLOG = 128
_READ_BYTES = 1 << 16
_PEER = struct.Struct("3i")  # pid, uid, gid

_log = logging.getLogger("healthd.http")


@dataclass(frozen=True)
class HttpPeer:
    """The client: a local user over a UNIX socket, or an address over TCP. All processes of a user are one client."""

    uid: int | None
    address: str = ""
    pid: int = field(default=0, compare=False)  # that connected; by now the number may be another process's

    @property
    def trusted(self) -> bool:
        """Return whether the peer is root or healthd's user, over a UNIX socket."""
        return self.uid is not None and self.uid in (0, os.geteuid())


class ConnectionLimits(NamedTuple):
    """Connection limits per listener for untrusted and trusted peers, and time limits for all."""

    per_door: int = 64
    per_peer: int = 16
    trusted: int = 32
    request_s: float = 5.0  # to receive the whole request
    answer_s: float = 10.0  # to send the whole answer
    drain_s: float = 1.0  # to drain a request that was answered before it was read


_DEFAULT_LIMITS = ConnectionLimits()


class RequestHandler(Protocol):
    """Produces the answers."""

    def body_bytes_max(self, request: Request, peer: HttpPeer) -> int:
        """Return the request body's size limit; 0 if no body is read."""

    def respond(self, request: Request, peer: HttpPeer, body: bytes | None) -> Reply | Callable[[], Reply]:
        """Return the answer, or a function that makes it if that is slow. `body` is None if none was read."""


class _Phase(enum.Enum):
    READING = enum.auto()
    WORKING = enum.auto()
    WRITING = enum.auto()
    DRAINING = enum.auto()


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    door: int
    peer: HttpPeer
    deadline: float
    phase: _Phase = _Phase.READING
    request: Request | None = None
    unread: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    whole: bool = False  # the request has been received completely
    drained: int = 0


class HttpResponder:
    """Takes over bound `listeners` and answers in its own thread until `close`."""

    def __init__(
        self, listeners: Sequence[socket.socket], pages: RequestHandler, limits: ConnectionLimits = _DEFAULT_LIMITS
    ) -> None:
        self._listeners = list(listeners)
        self._pages = pages
        self._limits = limits
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, None] = {}  # oldest first
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._accept_at = 0.0  # while descriptors are exhausted
        self._accepting = False
        self._worker = Worker()
        self._made: deque[tuple[_Connection, Reply]] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        for listener in self._listeners:
            listener.setblocking(False)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections and stop listening."""
        self._closing.set()
        self._wake()
        self._thread.join(JOIN_S)
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.socket.close()
        self._wake_read.close()
        self._wake_write.close()
        self._selector.close()
        if self._spare is not None:
            os.close(self._spare)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - the next turn must come, or no client gets an answer
                _log.exception("internal error; please report this")
                self._closing.wait(ACCEPT_PAUSE_S)

    def _turn(self) -> None:
        now = time.monotonic()
        self._listen(on=now >= self._accept_at)
        self._keep_spare()
        ends = [connection.deadline for connection in self._connections]
        ends += [] if self._accepting else [self._accept_at]
        ends += [] if self._spare is not None else [now + ACCEPT_PAUSE_S]  # nothing signals that a descriptor is free
        due = min(ends, default=float("inf"))
        ready = self._selector.select(None if due == float("inf") else max(0.0, due - now))
        for key, _ in ready:
            if isinstance(key.data, int):
                self._accept(key.data)
            elif key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(_READ_BYTES)
            elif key.data in self._connections:
                self._advance(key.data)
        while self._made:
            connection, reply = self._made.popleft()
            if connection in self._connections:
                self._send(connection, reply)
        now = time.monotonic()
        for connection in [each for each in self._connections if each.deadline <= now]:
            self._end_overdue(connection)

    def _listen(self, *, on: bool) -> None:
        if on is self._accepting:
            return
        for door, listener in enumerate(self._listeners):
            if on:
                self._selector.register(listener, selectors.EVENT_READ, door)
            else:
                self._selector.unregister(listener)
        self._accepting = on

    def _accept(self, door: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, peer = self._accept_one(self._listeners[door])
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in SHORTAGES:  # the listener stays ready; retrying at once would spin
                    self._accept_at = time.monotonic() + ACCEPT_PAUSE_S
                    return
                continue  # the client has disconnected already
            self._make_room(door, peer)
            accepted.setblocking(False)
            connection = _Connection(accepted, door, peer, time.monotonic() + self._limits.request_s)
            self._connections[connection] = None
            self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _accept_one(self, listener: socket.socket) -> tuple[socket.socket, HttpPeer]:
        """Accept the next connection; if descriptors are exhausted, use the reserved one.

        Raises:
            OSError: there is no connection, or no descriptor for it.
        """
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if isinstance(error, BlockingIOError) or error.errno not in SHORTAGES or self._spare is None:
                raise
            os.close(self._spare)
            self._spare = None
            accepted, address = listener.accept()
        if listener.family != socket.AF_UNIX:
            return accepted, HttpPeer(None, str(address[0]))
        pid, uid, _ = _PEER.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return accepted, HttpPeer(int(uid), pid=int(pid))

    def _make_room(self, door: int, peer: HttpPeer) -> None:
        """Close a client's oldest connection if a limit is reached."""
        if peer.trusted:
            trusted = [each for each in self._connections if each.peer.trusted]
            if len(trusted) >= self._limits.trusted:
                self._cut_oldest(trusted)
            return
        strangers = [each for each in self._connections if each.door == door and not each.peer.trusted]
        of_peer = [each for each in strangers if each.peer == peer]
        if len(of_peer) >= self._limits.per_peer:
            self._cut_oldest(of_peer)
        elif len(strangers) >= self._limits.per_door:
            ((most, _),) = Counter(each.peer for each in strangers).most_common(1)
            self._cut_oldest([each for each in strangers if each.peer == most])

    def _cut_oldest(self, connections: list[_Connection]) -> None:
        """Close the oldest connection without a request, else one being sent; never one that waits for its answer."""
        for phase in (_Phase.DRAINING, _Phase.READING, _Phase.WRITING):
            for connection in connections:
                if connection.phase is phase:
                    if phase is _Phase.READING:
                        reply = problem_reply(503, "you have too many open connections", "close some, and retry")
                        with contextlib.suppress(OSError):
                            connection.socket.send(render_reply(reply, time.time(), with_body=True))
                    self._drop(connection)
                    return

    def _advance(self, connection: _Connection) -> None:
        try:
            if connection.phase is _Phase.READING:
                self._read(connection)
            elif connection.phase is _Phase.WRITING:
                self._write(connection)
            else:
                self._drain(connection)
        except BlockingIOError:
            pass
        except OSError:  # it has disconnected
            self._drop(connection)

    def _read(self, connection: _Connection) -> None:
        data = connection.socket.recv(_READ_BYTES)
        if not data:  # it will send nothing more, so there is no request
            self._drop(connection)
            return
        connection.unread += data
        try:
            if connection.request is None:
                read = read_head(connection.unread)
                if read is None:
                    return
                connection.request = read[0]
                del connection.unread[: read[1]]
                self._begin_body(connection, read[0])
            self._take_body(connection, connection.request)
        except BadRequest as error:
            self._send(connection, problem_reply(error.status, str(error), error.todo))

    def _begin_body(self, connection: _Connection, request: Request) -> None:
        most = self._pages.body_bytes_max(request, connection.peer)
        if most and (request.length or 0) > most:
            raise BadRequest(413, f"the body is larger than {most} bytes", "send a smaller one")
        if most and request.length and request.wants_continue and not connection.unread:
            connection.socket.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _take_body(self, connection: _Connection, request: Request) -> None:
        body: bytes | None = None
        length = request.length or 0
        if self._pages.body_bytes_max(request, connection.peer) and request.length is not None:
            if len(connection.unread) < length:
                return
            body = bytes(connection.unread[:length])
            connection.whole = len(connection.unread) == length
        else:
            connection.whole = not length and not connection.unread
        connection.unread.clear()
        self._answer(connection, request, body)

    def _answer(self, connection: _Connection, request: Request, body: bytes | None) -> None:
        try:
            answer = self._pages.respond(request, connection.peer, body)
        except Exception:  # noqa: BLE001 - a page's mistake must not keep the others from being answered
            _log.exception("%s %s", request.method, request.path)
            answer = problem_reply(500, "internal error of healthd", "check its log, and report it")
        if isinstance(answer, Reply):
            self._send(connection, answer)
            return
        connection.phase, connection.deadline = _Phase.WORKING, float("inf")
        self._selector.unregister(connection.socket)
        if not self._worker.submit(self._job(connection, request, answer)):
            self._send(connection, problem_reply(503, "too many slow requests are in progress", "retry in a minute"))

    def _job(self, connection: _Connection, request: Request, make: Callable[[], Reply]) -> Callable[[], None]:
        def job() -> None:
            try:
                reply = make()
            except Exception:  # noqa: BLE001 - same
                _log.exception("%s %s", request.method, request.path)
                reply = problem_reply(500, "internal error of healthd", "check its log, and report it")
            self._made.append((connection, reply))
            self._wake()

        return job

    def _send(self, connection: _Connection, reply: Reply) -> None:
        with_body = connection.request is None or connection.request.method != "HEAD"
        connection.unsent += render_reply(reply, time.time(), with_body=with_body)
        self._enter(connection, _Phase.WRITING, selectors.EVENT_WRITE, self._limits.answer_s)
        self._advance(connection)  # most answers fit into the socket buffer

    def _write(self, connection: _Connection) -> None:
        sent = connection.socket.send(connection.unsent)
        del connection.unsent[:sent]
        if connection.unsent:
            return
        if connection.whole:
            self._drop(connection)
            return
        # Closing with unread data would make the kernel discard the answer.
        connection.socket.shutdown(socket.SHUT_WR)
        self._enter(connection, _Phase.DRAINING, selectors.EVENT_READ, self._limits.drain_s)

    def _drain(self, connection: _Connection) -> None:
        data = connection.socket.recv(_READ_BYTES)
        connection.drained += len(data)
        if not data or connection.drained > DRAINED_BYTES_MAX:
            self._drop(connection)

    def _enter(self, connection: _Connection, phase: _Phase, events: int, within_s: float) -> None:
        if connection.phase is _Phase.WORKING:
            self._selector.register(connection.socket, events, connection)
        else:
            self._selector.modify(connection.socket, events, connection)
        connection.phase, connection.deadline = phase, time.monotonic() + within_s

    def _end_overdue(self, connection: _Connection) -> None:
        if connection.phase is _Phase.READING and (connection.unread or connection.request):
            words = f"the request was incomplete after {self._limits.request_s:g} s"
            self._send(connection, problem_reply(408, words, "send the request without pauses"))
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        self._connections.pop(connection, None)
        connection.socket.close()
        self._keep_spare()

    def _keep_spare(self) -> None:
        """Keep one spare descriptor for a client that arrives when none is free."""
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # already awake, or closed
            self._wake_write.send(b"!")

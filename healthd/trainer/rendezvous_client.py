"""A rank's connection to its launcher: who is in the newest generation of the job's process group, and who is gone.

    HEALTHD_RENDEZVOUS=HOST:PORT   HEALTHD_RENDEZVOUS_TOKEN=...   HEALTHD_MEMBER=NUMBER   [HEALTHD_SPARE=1]

One JSON object per line, each way. The launcher learns from the end of the connection that this process has died, at once
and whatever killed it. No framework in here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

ADDRESS, TOKEN, MEMBER, SPARE = "HEALTHD_RENDEZVOUS", "HEALTHD_RENDEZVOUS_TOKEN", "HEALTHD_MEMBER", "HEALTHD_SPARE"
LINE_BYTES_MAX = 1 << 20
REASON_CHARACTERS_MAX = 200  # of a loss: an order may quote a whole kernel record
_MEMBERSHIP = frozenset({"generation", "release", "stop"})  # messages without which a rank cannot go on
CONNECT_SECONDS = 10.0

_log = logging.getLogger("healthd.trainer")


class GenerationPeer(NamedTuple):
    """A member of a generation, as the others reach it: `port` is that of the store it serves."""

    member: int
    node: str
    host: str
    port: int


class Generation(NamedTuple):
    """A process group: its members by rank."""

    number: int
    peers: tuple[GenerationPeer, ...]


class RendezvousError(Exception):
    """The launcher continues without this generation: no spare is left, or the launcher is lost."""


def take_messages(buffer: bytearray) -> list[dict[str, Any]]:
    """Take the whole lines out of `buffer`, as messages.

    Raises:
        ValueError: a line is no JSON object, or too long.
    """
    *whole, rest = buffer.split(b"\n")
    if len(rest) > LINE_BYTES_MAX:
        raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
    buffer[:] = rest
    messages = [json.loads(line) for line in whole]
    if not all(isinstance(each, dict) for each in messages):
        raise ValueError("a message that is not an object")
    return messages


def truncate_reason(reason: str) -> str:
    """A reason as messages, events and records take it: one line, and not too long."""
    line = " ".join(reason.split())
    return line if len(line) <= REASON_CHARACTERS_MAX else f"{line[: REASON_CHARACTERS_MAX - 1]}…"


def encode_message(kind: str, **fields: object) -> bytes:
    """A message as it is sent."""
    return json.dumps({"type": kind, **fields}).encode() + b"\n"


class RendezvousClient:
    """The connection, and what came over it. A thread of its own reads it."""

    def __init__(self, address: tuple[str, int], member: int, token: str, store_port: int) -> None:
        """Prefer `from_env`. Args: `address`: of the launcher; `member`: the number that the launcher gave this process."""
        self.member = member
        self._address = address
        self._arrival = encode_message("arrive", token=token, member=member, port=store_port, answers_pings=True)
        self.generation: Generation | None = None
        self.spares = 0
        self.elastic = False  # whether the number of ranks may change from one generation to the next
        self.pause_request = ""  # names the launcher's newest request to pause, so that the job can grow
        self._shrinks = False  # whether the job would go on without a node that is lost
        self._newest = -1  # number of the newest generation, also one in which this process has no rank
        self.finished = -1  # the last step that this rank knows to be held by all, in whichever generation
        self._connection: socket.socket | None = None
        self._released = False
        self._stopped = ""
        self.broken = False  # this process' newest generation lacks a rank, or is another process' by now
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._steps = 0  # that this process has begun
        self._on_change: Callable[[], None] = lambda: None

    @classmethod
    def from_env(cls, store_port: int, environ: Mapping[str, str] | None = None) -> RendezvousClient | None:
        """The launcher's, as the environment names it; None where there is none. `arrive` connects to it.

        Args:
            store_port: of the store that this process serves if it becomes rank 0.
            environ: for tests.

        Raises:
            RendezvousError: a variable that cannot be.
        """
        environ = os.environ if environ is None else environ
        if not environ.get(ADDRESS):
            return None
        host, _, port = environ[ADDRESS].rpartition(":")
        try:
            return cls((host, int(port)), int(environ.get(MEMBER, "")), environ.get(TOKEN, ""), store_port)
        except ValueError as error:
            raise RendezvousError(f"{ADDRESS}, {MEMBER}: {error}; start this job with healthctl launch") from error

    def arrive(self) -> None:
        """Come to the rendezvous: from now on this process may be given a rank.

        Raises:
            RendezvousError: the launcher cannot be reached.
        """
        try:
            connection = socket.create_connection(self._address, CONNECT_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(self._arrival)
        except OSError as error:
            where = f"{self._address[0]}:{self._address[1]}"
            raise RendezvousError(f"{ADDRESS}={where}: the launcher cannot be reached: {error}") from error
        connection.settimeout(None)
        self._connection = connection
        threading.Thread(target=self._read, args=(connection,), name="healthd-rendezvous", daemon=True).start()

    @property
    def number(self) -> int:
        """Of the newest generation; -1 before the first."""
        return self.generation.number if self.generation else -1

    @property
    def can_swap(self) -> bool:
        """Whether the others would go on in place if a rank left: it would be replaced, or they would be fewer."""
        return not self._stopped and (self.spares > 0 or self._shrinks)

    def is_over(self, number: int) -> bool:
        """Whether there is a newer generation than number `number`, with or without this process."""
        return self._newest > number

    @property
    def stopped(self) -> bool:
        """Whether the launcher has said that there will be no further generation."""
        return bool(self._stopped)

    def on_change(self, action: Callable[[], None]) -> None:
        """Call `action` in the reading thread at each new generation and at the end; it must not wait for the caller's lock."""
        self._on_change = action

    def send(self, kind: str, **fields: object) -> None:
        """Tell the launcher; one that is gone misses it."""
        if self._connection is not None:
            with contextlib.suppress(OSError), self._sending:
                self._connection.sendall(encode_message(kind, **fields))

    def note_step(self) -> None:
        """A step begins: the launcher sees from the count whether the job stands still."""
        self._steps += 1

    def evict(self, nodes: Collection[str], why: str) -> None:
        """These nodes are condemned: the launcher replaces every rank there."""
        self.send("evict", nodes=sorted(nodes), why=truncate_reason(why))

    def leave(self, code: int, why: str, *, replace: bool = False) -> None:
        """This process is about to end with `code`; `replace`: its node is condemned, and the others go on with a spare."""
        self.send("leaving", code=code, why=truncate_reason(why), replace=replace)

    def wait_newer(self, than: int, seconds: float | None = None) -> Generation | None:
        """The newest generation once it is newer than number `than` and this process is in it; None: all ranks are done.

        Raises:
            RendezvousError: there will be none, or none came within `seconds`.
        """
        with self._changed:
            came = self._changed.wait_for(lambda: self._released or self._stopped or self.number > than, seconds)
            if self._released:
                return None
            if self.number > than and not self._stopped:
                return self.generation
            raise RendezvousError(self._stopped if came else f"no new generation within {seconds:g} s")

    def wait_over(self, number: int, seconds: float) -> None:
        """Until there is a newer generation than number `number`, or all ranks are done; this process may have no rank in it.

        Raises:
            RendezvousError: there will be none, or none came within `seconds`.
        """
        with self._changed:
            came = self._changed.wait_for(lambda: self._released or self._stopped or self.is_over(number), seconds)
            if not came or (self._stopped and not self._released):
                raise RendezvousError(self._stopped or f"no new generation within {seconds:g} s")

    def is_replaced(self, number: int, seconds: float) -> bool:
        """Whether generation `number` lacks a rank; waits so long for the launcher to say so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_over(number) or self.broken, seconds)

    def close(self) -> None:
        """End the connection: for the launcher this process is gone."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _read(self, connection: socket.socket) -> None:
        buffer = bytearray()
        try:
            with connection:
                while data := connection.recv(1 << 16):
                    buffer += data
                    for message in take_messages(buffer):
                        self._take_readable(message)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("the launcher's rendezvous: %s", error)
        self._take({"type": "stop", "why": "lost the connection to the launcher", "broken": False})

    def _take_readable(self, message: dict[str, Any]) -> None:
        """A message that only informs ends no training, whatever is in it."""
        try:
            self._take(message)
        except (ValueError, KeyError, TypeError) as error:
            if message.get("type") in _MEMBERSHIP:
                raise
            _log.warning("a message of the launcher is not readable (%r), and is passed over: %.200s", error, message)

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            kind = message["type"]
            if kind == "generation":
                generation = Generation(message["number"], tuple(GenerationPeer(*each) for each in message["peers"]))
                self._take_generation(generation, message["waiting"])
                self._take_outlook(message)
            elif kind == "release":
                self._released = True
            elif kind == "stop" and not self._stopped:
                self._stopped, self.broken = message["why"], bool(message["broken"])
            elif kind == "spares":
                self._take_outlook(message)
            elif kind == "pause":
                self.pause_request = message["request"]
            self._changed.notify_all()
        if kind == "ping":
            self.send("pong", steps=self._steps)
        elif kind not in ("spares", "pause"):
            self._on_change()

    def _take_outlook(self, message: dict[str, Any]) -> None:
        self.spares, self.elastic, self._shrinks = message["spares"], message["elastic"], message["shrinks"]

    def _take_generation(self, generation: Generation, waiting: Collection[int]) -> None:
        """A process that waits may be in a later one; a rank that neither is in it nor waits was taken for lost."""
        self.pause_request = ""
        if any(peer.member == self.member for peer in generation.peers):
            self.generation, self._newest = generation, generation.number
        elif self.member in waiting:
            self._newest = generation.number
        elif self.generation is not None:
            self._stopped = self._stopped or "another process has this rank"
            self.broken = True

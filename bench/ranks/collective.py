"""The ranks' all-reduce over TCP by way of rank 0, with the time-out after which a stuck one is given up, as NCCL's watchdog does."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence

CONNECT_PAUSE_S = 0.1
ACCEPT_S = 0.2  # between two looks whether somebody is still to come
_RANK = struct.Struct(
    "!II"
)  # and the generation: a connection of another one is ended, and made again if it came too early
_WELCOME = b"1"


class StuckError(Exception):
    """A collective was not complete in time, or a peer is gone."""


class Collective:
    """One rank's connections. The sum is taken in the order of ranks, so that it has the same bits each time."""

    def __init__(
        self,
        address: tuple[str, int],
        rank: int,
        world: int,
        timeout_s: float,
        server: socket.socket | None = None,
        generation: int = 0,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Meet the others. Args: `server`: rank 0 is met there; None: it makes one; `over`: whether there is no need to any more.

        Raises:
            StuckError: not all came in time.
        """
        self._rank, self._world, self._timeout_s = rank, world, timeout_s
        self._generation, self._over = generation, over
        try:
            if rank:
                self._peers = [self._connect(address)]
            elif server is not None:
                self._peers = self._gather(server)
            else:
                with socket.create_server(address, backlog=world) as own:
                    self._peers = self._gather(own)
        except OSError as error:
            raise StuckError(f"rank {rank}: not all {world} ranks came within {timeout_s:g} s: {error}") from error

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Every rank's numbers, added up; on no rank before every rank has come.

        Raises:
            StuckError: it was not complete in time, or a peer is gone.
        """
        form = struct.Struct(f"!{len(numbers)}d")
        try:
            if self._rank:
                self._peers[0].sendall(form.pack(*numbers))
                return list(form.unpack(_read(self._peers[0], form.size)))
            total = list(numbers)
            for peer in self._peers:
                total = [a + b for a, b in zip(total, form.unpack(_read(peer, form.size)), strict=True)]
            for peer in self._peers:
                peer.sendall(form.pack(*total))
        except OSError as error:
            raise StuckError(f"rank {self._rank}: a collective is given up: {error}") from error
        return total

    def patience(self, seconds: float) -> None:
        """From now on a collective is given up after so long."""
        for peer in self._peers:
            peer.settimeout(seconds)

    def hang_up(self) -> None:
        """From another thread: whatever waits in a collective fails now."""
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Leave the others."""
        for peer in self._peers:
            peer.close()

    def _gather(self, server: socket.socket) -> list[socket.socket]:
        found: dict[int, socket.socket] = {}
        server.settimeout(ACCEPT_S)
        deadline = time.monotonic() + self._timeout_s
        with contextlib.ExitStack() as given_up:
            while len(found) < self._world - 1:
                self._require_current()
                if time.monotonic() > deadline:
                    raise TimeoutError("timed out")
                try:
                    peer = given_up.enter_context(server.accept()[0])
                    self._prepare(peer)
                    rank, generation = _RANK.unpack(_read(peer, _RANK.size))
                    if generation == self._generation:
                        peer.sendall(_WELCOME)
                        found[rank] = peer
                    else:
                        peer.close()
                except (TimeoutError, ConnectionError):
                    continue  # nobody has come, or has gone again: the launcher knows more
            given_up.pop_all()
        return [found[rank] for rank in sorted(found)]

    def _require_current(self) -> None:
        if self._over():
            raise ConnectionAbortedError("this generation has ended")

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._require_current()
            try:
                with contextlib.ExitStack() as refused:
                    peer = refused.enter_context(socket.create_connection(address, self._timeout_s))
                    self._prepare(peer)
                    peer.sendall(_RANK.pack(self._rank, self._generation))
                    self._await_welcome(peer, deadline)
                    refused.pop_all()
                    return peer
            except ConnectionError:  # rank 0 is not there yet, or not yet in this generation
                if time.monotonic() > deadline:
                    raise
                time.sleep(CONNECT_PAUSE_S)

    def _await_welcome(self, peer: socket.socket, deadline: float) -> None:
        peer.settimeout(ACCEPT_S)
        while True:
            self._require_current()
            try:
                _read(peer, len(_WELCOME))
                break
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
        peer.settimeout(self._timeout_s)

    def _prepare(self, peer: socket.socket) -> None:
        peer.settimeout(self._timeout_s)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionResetError("a peer is gone")
        data += more
    return data

"""The ranks' all-reduce over TCP by way of rank 0, with the time-out after which a stuck one is given up, as NCCL's watchdog does."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

CONNECT_PAUSE_S = 0.1
_RANK = struct.Struct("!I")


class StuckError(Exception):
    """A collective was not complete in time, or a peer is gone."""


class Collective:
    """One rank's connections. The sum is taken in the order of ranks, so that it has the same bits each time."""

    def __init__(self, address: tuple[str, int], rank: int, world: int, timeout_s: float) -> None:
        """Meet the others.

        Raises:
            StuckError: not all came in time.
        """
        self._rank, self._world, self._timeout_s = rank, world, timeout_s
        try:
            self._peers = self._gather(address) if rank == 0 else [self._connect(address)]
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

    def close(self) -> None:
        """Leave the others."""
        for peer in self._peers:
            peer.close()

    def _gather(self, address: tuple[str, int]) -> list[socket.socket]:
        found: dict[int, socket.socket] = {}
        with socket.create_server(address, backlog=self._world) as server:
            server.settimeout(self._timeout_s)
            while len(found) < self._world - 1:
                peer, _ = server.accept()
                self._prepare(peer)
                found[_RANK.unpack(_read(peer, _RANK.size))[0]] = peer
        return [found[rank] for rank in sorted(found)]

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                peer = socket.create_connection(address, self._timeout_s)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(CONNECT_PAUSE_S)
        self._prepare(peer)
        peer.sendall(_RANK.pack(self._rank))
        return peer

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

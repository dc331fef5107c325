"""Where ranks meet: over their nodes' own network, so that a cable that is pulled cuts them from each other, too.

Each tells all others how far it is, at once and again and again, in datagrams: what is lost is said anew, and a line that is back is
used at once. Only their addresses they leave in files, as a launcher's rendezvous would have them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import socket
import threading
import time
from pathlib import Path

AGAIN_S = 0.2
STUCK_S = 60.0  # for a peer: longer than anything that is done to one without its death
LAST_S = 1.0  # who is through says so for so long: another may not have heard it
CLONE_NEWNET = 0x40000000


def enter(node: str) -> str:
    """Be on a node's network from now on, before there are threads; its address there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{node}").open() as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"no way into the network of {node}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.77.0.1", 9))  # nothing is sent: it only looks for the way
        address: str = probe.getsockname()[0]
    return address


class Meeting:
    """One attempt's, of one rank. `place` is a folder that its ranks share."""

    def __init__(self, place: Path, rank: int, world: int, address: str) -> None:
        self._place, self._rank, self._world = place, rank, world
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        aside = place / f".address-{rank}"
        aside.write_text(json.dumps(self._socket.getsockname()))
        aside.rename(place / f"address-{rank}")
        self._peers: dict[int, tuple[str, int]] = {}
        self._number = 0
        self._heard = dict.fromkeys(range(world), 0)
        self._news = threading.Condition()
        self._closed = threading.Event()
        self._socket.settimeout(AGAIN_S)
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._listen, self._repeat)]
        for thread in self._threads:
            thread.start()

    def meet(self, where: str) -> None:
        """All ranks, or nobody."""
        self._number += 1
        ends = time.monotonic() + STUCK_S
        self._tell()
        while missing := [rank for rank, number in self._heard.items() if rank != self._rank and number < self._number]:
            if time.monotonic() > ends:
                raise TimeoutError(f"rank {self._rank}: nobody of {missing} at {where}")
            if self._closed.is_set():
                raise ConnectionAbortedError(f"rank {self._rank}: closed at {where}")
            with self._news:
                self._news.wait(AGAIN_S)

    def leave(self) -> None:
        """The end: others may still have to hear the last word."""
        if self._world > 1:
            time.sleep(LAST_S)

    def close(self) -> None:
        """Be gone; who waits for the others here waits no longer."""
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _tell(self) -> None:
        said = json.dumps([self._place.name, self._rank, self._number]).encode()
        for rank in range(self._world):
            if rank != self._rank and (peer := self._address_of(rank)) is not None:
                with contextlib.suppress(OSError):  # the cable is pulled
                    self._socket.sendto(said, peer)

    def _repeat(self) -> None:
        while not self._closed.wait(AGAIN_S):
            self._tell()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                attempt, rank, number = json.loads(self._socket.recv(1024))
            except TimeoutError:
                continue
            if attempt == self._place.name:
                with self._news:
                    self._heard[rank] = max(self._heard[rank], number)
                    self._news.notify_all()

    def _address_of(self, rank: int) -> tuple[str, int] | None:
        file = self._place / f"address-{rank}"
        if rank not in self._peers and file.exists():
            host, port = json.loads(file.read_text())
            self._peers[rank] = host, port
        return self._peers.get(rank)

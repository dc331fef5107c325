"""Words over one rail by TCP, to a peer that sends back what it gets.

    python -m preflight.host.rail_traffic ADDRESS:PORT

answers on the peer's side until it is ended. A node cannot do without a peer: what it sends to its own address never leaves it.
"""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

BLOCK_BYTES = 1 << 20
TIMEOUT_S = 10.0


class TrafficResult(msgspec.Struct, frozen=True):
    """The result: GB/s per direction with both in use, and how many bytes of how many were wrong, the first at `first`."""

    rate: float
    total: int
    wrong: int = 0
    first: int = -1


def exchange_over_rail(
    interface: str,
    address: tuple[str, int],
    seconds: float,
    *,
    spoil: bool = False,
    slow_s: float = 0.0,
    timeout_s: float = TIMEOUT_S,
) -> TrafficResult:
    """Send blocks over `interface` ("" for any) to `address` for about `seconds`, at least two, and compare all returned data.

    `spoil` and `slow_s` inject faults: a flipped bit in the received data, a delay per block.

    Raises:
        OSError: no way there, no answer in time, or no right to choose the interface (that takes CAP_NET_RAW on old kernels).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        link.settimeout(timeout_s)
        if interface:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        link.connect(address)
        began, spent, number, wrong, first = time.perf_counter(), 0.0, 0, 0, -1
        while number < 2 or time.perf_counter() - began < seconds:
            sent = _build_block(number)
            started = time.perf_counter()
            time.sleep(slow_s)
            back = _send_and_receive(link, sent)
            if number:  # the first is not timed: connections are cold, and the peer may be late
                spent += time.perf_counter() - started
            if spoil:
                back[BLOCK_BYTES // 2] ^= 4
            if back != sent:
                places = [place for place, (a, b) in enumerate(zip(back, sent, strict=True)) if a != b]
                first = number * BLOCK_BYTES + places[0] if first < 0 else first
                wrong += len(places)
            number += 1
    return TrafficResult((number - 1) * BLOCK_BYTES / spent / 1e9, number * BLOCK_BYTES, wrong, first)


def _build_block(number: int) -> bytes:
    """Bytes without a pattern; all parts differ, so that swapped parts are detected."""
    return hashlib.shake_128(number.to_bytes(8, "little")).digest(BLOCK_BYTES)


def _send_and_receive(link: socket.socket, sent: bytes) -> bytearray:
    """Send and receive at the same time: sending everything first could deadlock with a peer that waits to send."""
    failure: list[OSError] = []

    def send() -> None:
        try:
            link.sendall(sent)
        except OSError as error:
            failure.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    back, view = bytearray(len(sent)), 0
    window = memoryview(back)
    while view < len(sent):
        if not (got := link.recv_into(window[view:])):
            raise ConnectionResetError(f"the peer closed the connection after {view} bytes of a block")
        view += got
    sender.join()
    if failure:
        raise failure[0]
    return back


@contextmanager
def run_echo_server(address: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """Return all received data to any number of clients while inside; yields the address, with a free port if it was 0."""
    with socket.create_server(address) as server:
        threading.Thread(target=_accept_connections, args=(server,), daemon=True).start()
        try:
            yield server.getsockname()[:2]
        finally:
            server.shutdown(socket.SHUT_RDWR)


def _accept_connections(server: socket.socket) -> None:
    while True:
        try:
            link, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_echo_connection, args=(link,), daemon=True).start()


def _echo_connection(link: socket.socket) -> None:
    with link, suppress(OSError):
        while data := link.recv(BLOCK_BYTES):
            link.sendall(data)


if __name__ == "__main__":
    host, _, number = sys.argv[1].rpartition(":")
    with run_echo_server((host, int(number))) as here:
        print(f"answering on {here[0]}:{here[1]}", flush=True)  # noqa: T201 - who started it waits for this line
        threading.Event().wait()

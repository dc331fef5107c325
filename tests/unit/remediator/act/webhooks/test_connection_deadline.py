"""One time for a whole delivery, however many addresses its receiver has."""

from __future__ import annotations

import socket
import time

import pytest

from remediator.notifications.connection_deadline import connect_before_deadline, connect_first_address


class Addresses:
    """A clock, and addresses that take all the seconds they are given, or refuse at once, or answer at once."""

    def __init__(self) -> None:
        self.now = 100.0
        self.given: list[float] = []

    def connect(self, address: str, seconds: float) -> str:
        self.given.append(seconds)
        if address == "dead":
            self.now += seconds
            raise TimeoutError
        if address == "refuses":
            raise ConnectionRefusedError
        return address


def test_all_addresses_share_one_time_and_a_dead_one_leaves_the_others_theirs() -> None:
    world = Addresses()
    assert connect_first_address(["dead", "dead", "answers"], 112.0, world.connect, lambda: world.now) == "answers"
    assert world.given == [4.0, 4.0, 4.0]
    quick = Addresses()
    assert connect_first_address(["refuses", "answers"], 110.0, quick.connect, lambda: quick.now) == "answers"
    assert quick.given == [5.0, 10.0], "what is not used is the next one's"


def test_when_the_time_is_over_it_is_over() -> None:
    world = Addresses()
    with pytest.raises(TimeoutError):
        connect_first_address(["dead"] * 5, 110.0, world.connect, lambda: world.now)
    assert world.now == pytest.approx(110.0)
    with pytest.raises(TimeoutError):
        connect_first_address(["answers"], world.now, world.connect, lambda: world.now)
    with pytest.raises(ConnectionRefusedError):
        connect_first_address(["refuses"], 120.0, world.connect, lambda: world.now)


def test_a_name_is_connected_to_and_its_reader_waits_no_longer_than_is_left() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, connect_before_deadline("localhost", server.getsockname()[1], time.monotonic() + 60) as raw:
        assert 0 < (raw.gettimeout() or 0) <= 60

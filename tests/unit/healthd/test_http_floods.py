"""The local door in a flood: who asks as one should is answered, whoever else comes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.healthd.http_server_fixture import FOREVER, Door, all_of, ask, statuses, until

A_STRANGER = (
    "setpriv",
    "--reuid=61985",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
FLOOD = """
import socket, sys
held = [socket.socket(socket.AF_UNIX) for _ in range(60)]
for each in held:
    each.connect(sys.argv[1])
    each.send(b"GET /v1/ver")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_flood_over_tcp_keeps_nobody_out(make_door: Callable[..., Door]) -> None:
    door = make_door()
    threads = threading.active_count()
    with contextlib.ExitStack() as flood:
        for _ in range(100):
            flood.enter_context(door.tcp()).send(b"GET /v1/ver")
        assert statuses(ask(door.unix())) == [200]
        assert statuses(ask(door.tcp())) == [200], "not even one of the same address"
        until(lambda: door.open() <= FOREVER.per_peer)
        assert threading.active_count() == threads


def test_a_flood_from_several_addresses_costs_those_who_hold_most(make_door: Callable[..., Door]) -> None:
    door = make_door()
    with contextlib.ExitStack() as callers:

        def call(address: str) -> socket.socket:
            caller = socket.create_connection(door.server.address, timeout=60, source_address=(address, 0))
            callers.enter_context(caller).send(b"GET /v1/ver")
            return caller

        honest = call("127.0.0.2")
        for number in (3, 4, 5, 6):
            for _ in range(FOREVER.per_peer):
                call(f"127.0.0.{number}")
        assert statuses(ask(call("127.0.0.200"), b"dict HTTP/1.1\r\nHost: x\r\n\r\n")) == [200]
        assert door.open() <= FOREVER.per_door
        assert statuses(ask(honest, b"dict HTTP/1.1\r\nHost: x\r\n\r\n")) == [200], "the oldest, and one alone"


def test_roots_own_flood_lets_root_in(make_door: Callable[..., Door]) -> None:
    door = make_door()
    with contextlib.ExitStack() as flood:
        first = flood.enter_context(door.unix())
        first.send(b"GET /v1/ver")
        for _ in range(30):
            flood.enter_context(door.unix()).send(b"GET /v1/ver")
        assert statuses(ask(door.unix())) == [200]
        assert statuses(all_of(first)) == [503], "the oldest makes room"
        assert door.open() <= FOREVER.trusted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_users_flood_keeps_root_out_of_nothing(make_door: Callable[..., Door]) -> None:
    with tempfile.TemporaryDirectory(prefix="gh-door-") as folder:
        Path(folder).chmod(0o755)
        door = make_door(place=Path(folder))
        command = [*A_STRANGER, sys.executable, "-c", FLOOD, str(door.path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
            assert flood.stdout is not None
            assert flood.stdout.readline() == b"held\n"
            assert statuses(ask(door.unix())) == [200]  # it came after them
            until(lambda: door.open() == FOREVER.per_peer)
            kept = set(door.server._responder._connections)
            for _ in range(20):
                assert statuses(ask(door.unix())) == [200]
            assert {each.peer.uid for each in kept} == {61985}
            assert kept == set(door.server._responder._connections), "nor did root need a place of theirs"
            flood.communicate()

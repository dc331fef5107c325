"""The launcher's rendezvous over real sockets: what members and strangers send, in any order, and how they go."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from healthd.launcher.process_groups import member_heartbeats
from healthd.launcher.process_groups.group_membership import Member
from healthd.launcher.process_groups.rendezvous_server import RendezvousServer
from healthd.launcher.scheduler_backend import Event
from healthd.trainer.exit_codes import ExitCode
from healthd.trainer.rendezvous_client import ADDRESS, REASON_CHARACTERS_MAX, TOKEN, encode_message

DEADLINE_S = 3.0
MakeServer = Callable[..., RendezvousServer]


class Client:
    """A member's connection, without a training process behind it."""

    made: ClassVar[list[Client]] = []

    def __init__(self, server: RendezvousServer, member: int, *, arrives: bool = True, **fields: object) -> None:
        environ = server.environ
        host, _, port = environ[ADDRESS].rpartition(":")
        self.member, self.token = member, environ[TOKEN]
        self.connection = socket.create_connection((host, int(port)), DEADLINE_S)
        self._lines = self.connection.makefile("rb")
        self.made.append(self)
        if arrives:
            self.send("arrive", token=self.token, member=member, port=1000 + member, **fields)

    def send(self, kind: str, **fields: object) -> None:
        self.connection.sendall(encode_message(kind, **fields))

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of this kind."""
        for line in self._lines:
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message
        raise AssertionError(f"the launcher ended the connection before it sent {kind!r}")

    def members(self, generation: int) -> list[int]:
        """Those of a generation, by rank."""
        while (message := self.hear("generation"))["number"] < generation:
            pass
        assert message["number"] == generation
        return [peer[0] for peer in message["peers"]]

    def ended(self) -> bool:
        """Wait for the launcher to end the connection."""
        with contextlib.suppress(ConnectionError):
            while self._lines.readline():
                pass
        return True

    def die(self) -> None:
        self._lines.close()
        self.connection.close()


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    made = []

    def make(world: int = 2, spares: int = 1, frozen_seconds: float = 0.0) -> RendezvousServer:
        members = [Member(number, f"n{number}") for number in range(world + spares)]
        made.append(RendezvousServer(members, world, frozen_seconds=frozen_seconds))
        return made[-1]

    yield make
    while Client.made:
        Client.made.pop().die()
    for server in made:
        server.close()
        assert not server._thread.is_alive()


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def all_come(server: RendezvousServer, count: int) -> list[Client]:
    """So many members, of which the first two hold ranks, once all have come."""
    clients = [Client(server, member) for member in range(count)]
    for client in clients:
        client.hear("spares")
    for client in clients[:2]:
        client.members(0)
    return clients


def test_a_spare_takes_the_rank_of_a_member_whose_connection_ends(make_server: MakeServer) -> None:
    first, second, spare = all_come(make_server(), 3)
    second.die()
    assert first.members(1) == spare.members(1) == [0, 2]


GARBAGE = {
    "no JSON": b"hello\n",
    "no object": b"[1]\n",
    "no type": b"{}\n",
    "nested too deep": b"[" * 100_000 + b"\n",
    "a digit too many": b'{"type": ' + b"9" * 10_000 + b"}\n",
    "no UTF-8": b"\xff\xfe\n",
    "a lone surrogate": b'{"type": "arrive", "token": "\\ud800", "member": 0, "port": 1}\n',
    "another token": b'{"type": "arrive", "token": "x", "member": 0, "port": 1}\n',
    "evicts before it has arrived": b'{"type": "evict", "nodes": ["n0"], "why": ""}\n',
    "half a line and no end": b"x" * 2_000_000,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_stranger_who_sends_garbage_is_shown_out_and_harms_nobody(make_server: MakeServer, garbage: bytes) -> None:
    server = make_server()
    stranger = Client(server, 0, arrives=False)
    with contextlib.suppress(ConnectionError):
        stranger.connection.sendall(garbage)
    assert stranger.ended()
    first, second, _ = all_come(server, 3)
    second.die()
    assert first.members(1) == [0, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"member": 99},
        {"member": [0]},
        {"member": "0"},
        {"member": None},
        {"port": None},
        {"port": float("inf")},
    ],
    ids=str,
)
def test_a_member_that_cannot_be_is_shown_out(make_server: MakeServer, fields: dict[str, object]) -> None:
    server = make_server()
    stranger = Client(server, 0, arrives=False)
    stranger.send("arrive", **{"token": stranger.token, "member": 0, "port": 1} | fields)
    assert stranger.ended()
    all_come(server, 3)


def test_a_member_that_sends_what_cannot_be_is_lost_and_replaced(make_server: MakeServer) -> None:
    first, second, _ = all_come(make_server(), 3)
    second.send("leaving", code=float("inf"))
    assert first.members(1) == [0, 2]


@pytest.mark.parametrize("spares", [1, 0])
def test_a_member_that_does_not_answer_is_replaced_if_a_spare_is_there(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, spares: int
) -> None:
    monkeypatch.setattr(member_heartbeats, "PING_SECONDS", 0.05)
    server = make_server(spares=spares, frozen_seconds=0.2)
    clients = [Client(server, member, answers_pings=True) for member in range(2 + spares)]
    clients[0].members(0)
    clients[0].send("advanced", generation=0, step=0, source="")
    answering, end = [clients[0], *clients[2:]], time.monotonic() + (DEADLINE_S if spares else 1.0)
    while time.monotonic() < end and not server.take_condemned():
        for client in answering:
            client.send("pong", steps=1)
        time.sleep(0.02)
    assert server.rank_of(2) == (1 if spares else None)
    assert not server.stopped


def test_a_second_connection_of_a_member_is_refused_and_the_first_one_counts(make_server: MakeServer) -> None:
    server = make_server()
    first, second, _ = all_come(server, 3)
    assert Client(server, 1).ended()
    second.die()
    assert first.members(1) == [0, 2]


def test_strangers_in_any_number_keep_no_member_out(make_server: MakeServer) -> None:
    server = make_server()
    strangers = [Client(server, 0, arrives=False) for _ in range(200)]
    first, second, _ = all_come(server, 3)
    assert strangers[0].ended()
    second.die()
    assert first.members(1) == [0, 2]
    for each in strangers:
        each.die()


def test_a_process_that_has_ended_is_lost_though_a_worker_of_it_keeps_its_connection(make_server: MakeServer) -> None:
    server = make_server()
    first, second, _ = all_come(server, 3)
    go_on = multiprocessing.get_context("fork").Event()
    worker = multiprocessing.get_context("fork").Process(target=go_on.wait)
    worker.start()
    try:
        second.die()  # the worker's copy keeps it open
        server.note_end(1)
        assert first.members(1) == [0, 2]
    finally:
        go_on.set()
        worker.join()


def test_what_a_process_sent_before_it_ended_is_heard(make_server: MakeServer) -> None:
    server = make_server()
    first, second, _ = all_come(server, 3)
    second.send("leaving", code=int(ExitCode.NEVER_AGAIN), why="an order")
    server.note_end(1)
    assert "leaves with 93" in first.hear("stop")["why"]


def test_a_member_lost_after_it_was_done_is_replaced_until_all_are_done(make_server: MakeServer) -> None:
    server = make_server(spares=2)
    first, second, spare, _ = all_come(server, 4)
    first.send("done", generation=0)
    first.die()
    assert second.members(1) == [2, 1]
    second.die()
    assert spare.members(2) == [2, 3]


@pytest.mark.parametrize(("lives", "lost"), [(True, 2), (False, None)])
def test_what_a_swap_lost_is_unknown_once_nobody_is_left_who_knew(
    make_server: MakeServer, lost: int | None, *, lives: bool
) -> None:
    server = make_server(spares=2)
    first, second, *spares = all_come(server, 4)
    for client in (first, second):
        client.send("loaded", generation=0, begin=0, finished=-1)
        client.send("entered", generation=0)
    first.send("advanced", generation=0, step=0, source="the beginning")
    wait_until(lambda: server._advanced)
    second.die()
    assert spares[0].members(1) == [0, 2]
    if not lives:
        first.die()
        assert spares[0].members(2) == [3, 2]
    number, rank_0 = (1, first) if lives else (2, spares[1])
    for client, finished in ((rank_0, 6 if lives else 4), (spares[0], 4)):
        client.send("loaded", generation=number, begin=5, finished=finished)
    rank_0.send("advanced", generation=number, step=5, source="a checkpoint")
    events: dict[str, Event] = {}

    def swapped() -> bool:
        events.update({event.kind: event for event in server.take_events()})
        return "swapped" in events

    wait_until(swapped)
    assert events["swapped"].facts["lost"] == lost
    assert ("unknown" in events["swapped"].text) is not lives


def test_after_the_release_how_processes_end_counts(make_server: MakeServer) -> None:
    server = make_server()
    clients = all_come(server, 3)
    for client in clients[:2]:
        client.send("done", generation=0)
    for client in clients:
        client.hear("release")
    assert server.stopped
    clients[1].die()
    server.note_end(1)
    assert server.rank_of(1) == 1
    assert not [event for event in server.take_events() if event.kind != "rank_replaced"]


def test_a_spare_that_comes_after_the_release_is_released(make_server: MakeServer) -> None:
    server = make_server()
    clients = [Client(server, member) for member in range(2)]
    for client in clients:
        client.members(0)
        client.send("done", generation=0)
    clients[0].hear("release")
    Client(server, 2).hear("release")


def test_a_member_that_comes_after_the_stop_hears_of_it(make_server: MakeServer) -> None:
    server = make_server()
    server.stop("the job received a stop request")
    assert Client(server, 0).hear("stop")["why"] == "the job received a stop request"


def test_an_evicted_member_cannot_stop_the_job_that_goes_on_without_it(make_server: MakeServer) -> None:
    server = make_server(spares=2)
    first, second, spare, _ = all_come(server, 4)
    first.send("evict", nodes=["n1"], why="an order")
    assert first.members(1) == [0, 2]
    assert second.members(1) == [0, 2]
    second.send("leaving", code=1, why="another process has this rank")
    second.die()
    spare.die()
    assert first.members(2) == [0, 3]
    assert not server.stopped


@pytest.mark.parametrize(
    "code", [ExitCode.DONE, ExitCode.CONDEMNED, ExitCode.RELAUNCH, ExitCode.ABORTED, ExitCode.NEVER_AGAIN]
)
def test_a_member_that_leaves_in_good_order_is_not_replaced(make_server: MakeServer, code: ExitCode) -> None:
    server = make_server()
    first, second, _ = all_come(server, 3)
    second.send("leaving", code=int(code), why="on an order")
    second.die()
    assert not first.hear("stop")["broken"]
    assert server.stopped


KERNEL_LINE = "NVRM: Xid (PCI:0000:3b:00): 94, pid=4711,\n name=python, Contained: CE User Channel (0x9). " * 40


def test_a_reason_that_quotes_a_kernel_record_is_cut_where_the_record_is_made(make_server: MakeServer) -> None:
    server = make_server(spares=2)
    first, _, spare, _ = all_come(server, 4)
    first.send("evict", nodes=["n1"], why=KERNEL_LINE)
    assert first.members(1) == [0, 2]
    spare.send("leaving", code=1, why=KERNEL_LINE)
    why = first.hear("stop")["why"]
    events = {event.kind: event.text for event in server.take_events()}
    for text in (events["rank_lost"], events["swap_impossible"], why):
        assert len(text) <= REASON_CHARACTERS_MAX + 100  # and what it is the reason for
        assert "NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, name=python" in text


def test_a_member_that_leaves_to_be_replaced_is(make_server: MakeServer) -> None:
    first, second, _ = all_come(make_server(), 3)
    second.send("leaving", code=int(ExitCode.CONDEMNED), why="its node is condemned", replace=True)
    assert first.members(1) == [0, 2]


def test_without_a_spare_the_others_are_told_that_their_group_is_broken(make_server: MakeServer) -> None:
    first, second = all_come(make_server(spares=0), 2)
    second.die()
    assert first.hear("stop")["broken"]


def test_of_a_generation_that_does_not_form_only_those_are_lost_that_do_not_come(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("healthd.launcher.process_groups.rendezvous_server.ENTER_SECONDS", 0.5)
    server = make_server(spares=2)
    first, second, frozen, spare = [Client(server, member) for member in range(4)]
    first.members(0)  # which has all the time that it needs: a job's first start is slow
    second.die()
    assert first.members(1) == [0, 2]
    first.send("entering", generation=1)  # and waits there for the other one
    assert first.members(2) == spare.members(2) == [0, 3]
    for each in (first, spare):
        each.send("entered", generation=2)
    assert server.take_condemned() == [2]
    assert not server.stopped
    frozen.die()


def test_a_server_that_fails_replaces_nobody_and_hangs_up(make_server: MakeServer) -> None:
    server = make_server()
    clients = all_come(server, 3)
    server._selector.close()
    clients[0].send("entered", generation=0)
    assert all(client.ended() for client in clients)
    wait_until(lambda: server.stopped)
    assert any("rendezvous has failed" in event.text for event in server.take_events())


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_are_given_back(make_server: MakeServer) -> None:
    before = count_descriptors()
    for client in all_come(server := make_server(), 3):
        client.die()
    server.close()
    assert count_descriptors() <= before


def test_ranks_that_could_not_connect_though_all_live_try_again_in_a_new_generation(make_server: MakeServer) -> None:
    began = time.monotonic()
    server = make_server(spares=0)
    first, second = all_come(server, 2)
    first.send("paused", generation=0)
    second.send("paused", generation=0)
    assert first.members(1) == second.members(1) == [0, 1]
    assert not server.stopped
    first.send("advanced", generation=1, step=5, source="a test")
    resumed: list[Event] = []
    wait_until(lambda: bool(resumed.extend(server.take_events()) or resumed))
    assert (resumed[0].kind, resumed[0].facts["lost"]) == ("resumed", 0), "nobody had trained"
    assert 0 <= float(str(resumed[0].facts["seconds"])) <= time.monotonic() - began, "they count from the first pause"

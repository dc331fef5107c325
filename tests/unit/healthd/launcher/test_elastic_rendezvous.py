"""The launcher's rendezvous of a job whose number of ranks may change, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from healthd.launcher.process_groups.elastic_membership import SizeLimits
from healthd.launcher.process_groups.group_membership import Member
from healthd.launcher.process_groups.rendezvous_server import RendezvousServer
from healthd.launcher.scheduler_backend import Event
from healthd.trainer.rendezvous_client import MEMBER, RendezvousError
from healthd.trainer.rendezvous_client import RendezvousClient as Client

DEADLINE_S = 10.0
Begin = Callable[..., tuple[RendezvousServer, list[Client]]]


def join(server: RendezvousServer, member: int) -> Client:
    client = Client.from_env(1000 + member, server.environ | {MEMBER: str(member)})
    assert client is not None
    client.arrive()
    return client


def advance(*clients: Client, fixed: str = "") -> None:
    """A step of the newest generation is done, and rank 0 tells it."""
    for client in clients:
        client.send("entered", generation=client.number)
        client.send("loaded", generation=client.number, begin=5, finished=4)
    clients[0].send("advanced", generation=clients[0].number, step=5, source="a test")
    clients[0].send("fixed", generation=clients[0].number, why=fixed)


@pytest.fixture
def begin() -> Iterator[Begin]:
    """A job of so many nodes in its first generation, of which a step is done."""
    made: list[RendezvousServer] = []

    def begin(
        nodes: int = 3, *, least: int = 1, per_node: int = 1, fixed: str = ""
    ) -> tuple[RendezvousServer, list[Client]]:
        members = [Member(number, f"n{number // per_node}") for number in range(nodes * per_node)]
        server = RendezvousServer(members, len(members), sizes=SizeLimits(least, nodes, per_node))
        made.append(server)
        clients = [join(server, each.number) for each in members]
        for client in clients:
            client.wait_newer(-1, DEADLINE_S)
        advance(*clients, fixed=fixed)
        until(lambda: server._advanced)
        return server, clients

    yield begin
    for server in made:
        server.close()


def members(client: Client, than: int) -> list[int]:
    generation = client.wait_newer(than, DEADLINE_S)
    assert generation is not None
    return [peer.member for peer in generation.peers]


def kinds(server: RendezvousServer) -> list[str]:
    return [event.kind for event in server.take_events()]


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_survivors_go_on_and_each_change_is_told_with_its_seconds(begin: Begin) -> None:
    server, (first, second, third) = begin()
    first.close()
    assert members(second, 0) == members(third, 0) == [1, 2]
    advance(second, third)
    events: dict[str, Event] = {}

    def told() -> bool:
        events.update({event.kind: event for event in server.take_events()})
        return "shrunk" in events

    until(told)
    assert third.can_swap
    assert list(events) == ["rank_lost", "shrinking", "shrunk"]
    facts = events["shrunk"].facts
    assert (facts["ranks"], facts["ranks_before"], facts["step"], facts["lost"]) == (2, 3, 5, 0)
    assert set(facts["phases"]) == {"decided", "met", "state", "first step"}  # type: ignore[call-overload]  # a dict
    assert server.rank_nodes == ["n1", "n2"]


def test_a_node_that_returns_is_taken_in_once_all_ranks_have_paused(begin: Begin) -> None:
    server, (first, second) = begin(2)
    second.close()
    assert members(first, 0) == [0]
    server.admit([Member(2, "n1")])
    newcomer = join(server, 2)
    until(lambda: first.spares == 1)
    assert first.pause_request == "", "nothing is known of this generation yet"
    advance(first)
    until(lambda: bool(first.pause_request))
    assert first.number == 1
    first.send("paused", generation=1)
    assert members(first, 1) == members(newcomer, -1) == [0, 2]
    advance(first, newcomer)
    until(lambda: first.pause_request == "")
    first.send("done", generation=2)
    newcomer.send("done", generation=2)
    assert first.wait_newer(2, DEADLINE_S) is None
    assert kinds(server) == ["rank_lost", "shrinking", "shrunk", "growing", "grown"]


def test_a_newcomer_that_dies_while_the_ranks_pause_holds_nobody_up(begin: Begin) -> None:
    server, (first, second) = begin(2)
    second.close()
    members(first, 0)
    server.admit([Member(2, "n1")])
    newcomer = join(server, 2)
    advance(first)
    until(lambda: bool(first.pause_request))
    newcomer.close()
    until(lambda: first.spares == 0)
    first.send("paused", generation=1)
    assert members(first, 1) == [0]
    advance(first)
    first.send("done", generation=2)
    assert first.wait_newer(2, DEADLINE_S) is None
    assert kinds(server)[-1] == "resumed"


def test_a_rank_that_waits_is_not_lost_and_its_generation_is_over(begin: Begin) -> None:
    _, (first, _, third, fourth) = begin(2, per_node=2)
    third.close()
    assert members(first, 0) == [0, 1]
    fourth.wait_over(0, DEADLINE_S)
    assert fourth.number == 0
    assert not fourth.stopped
    assert not fourth.broken


@pytest.mark.parametrize(("least", "fixed"), [(2, ""), (1, "its state is sharded")])
def test_where_the_job_cannot_shrink_its_ranks_are_told_so(begin: Begin, least: int, fixed: str) -> None:
    server, (first, second) = begin(2, least=least, fixed=fixed)
    second.close()
    with pytest.raises(RendezvousError, match=fixed or "at least 2 nodes required, 1 remain"):
        first.wait_over(0, DEADLINE_S)
    assert first.broken
    assert server.stopped

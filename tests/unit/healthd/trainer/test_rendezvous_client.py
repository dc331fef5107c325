"""A member's side of the rendezvous, against the launcher's real server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from healthd.launcher.process_groups.group_membership import Member
from healthd.launcher.process_groups.rendezvous_server import RendezvousServer as Server
from healthd.trainer.exit_codes import ExitCode
from healthd.trainer.rendezvous_client import ADDRESS, MEMBER, REASON_CHARACTERS_MAX, RendezvousClient, RendezvousError

DEADLINE_S = 10.0
Join = Callable[[int], RendezvousClient]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server([Member(number, f"n{number}") for number in range(3)], world=2)
    yield server
    server.close()


@pytest.fixture
def join(server: Server) -> Iterator[Join]:
    made = []

    def join(number: int) -> RendezvousClient:
        member = RendezvousClient.from_env(1000 + number, server.environ | {MEMBER: str(number)})
        assert member is not None
        made.append(member)
        member.arrive()
        return member

    yield join
    for member in made:
        member.close()
    for thread in threading.enumerate():
        if thread.name == "healthd-rendezvous":
            thread.join(DEADLINE_S)


def await_spares(member: RendezvousClient, spares: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while member.spares != spares:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_without_a_launcher_there_is_none() -> None:
    assert RendezvousClient.from_env(1, {}) is None


@pytest.mark.parametrize(
    "changes", [{ADDRESS: "nowhere"}, {ADDRESS: "127.0.0.1:x"}, {MEMBER: "x"}, {MEMBER: ""}], ids=str
)
def test_variables_that_cannot_be_are_named(server: Server, changes: dict[str, str]) -> None:
    with pytest.raises(RendezvousError, match=ADDRESS):
        RendezvousClient.from_env(1, server.environ | {MEMBER: "0"} | changes)


def test_a_launcher_that_is_not_there_is_named(server: Server) -> None:
    member = RendezvousClient.from_env(1, server.environ | {MEMBER: "0"} | {ADDRESS: "127.0.0.1:1"})
    assert member is not None
    with pytest.raises(RendezvousError, match=f"{ADDRESS}=127.0.0.1:1"):
        member.arrive()


def test_members_hear_who_holds_which_rank_and_who_follows_a_lost_one(join: Join) -> None:
    first, second, spare = (join(number) for number in range(3))
    for member in (first, second):
        generation = member.wait_newer(-1, DEADLINE_S)
        assert generation is not None
        assert [(peer.member, peer.node, peer.port) for peer in generation.peers] == [(0, "n0", 1000), (1, "n1", 1001)]
    second.close()
    for member in (first, spare):
        generation = member.wait_newer(0, DEADLINE_S)
        assert generation is not None
        assert [peer.member for peer in generation.peers] == [0, 2]
    assert not first.can_swap
    assert not first.broken


def test_a_stop_leaves_the_group_of_a_member_alone(server: Server, join: Join) -> None:
    first, _ = join(0), join(1)
    first.wait_newer(-1, DEADLINE_S)
    server.stop("the job received a stop request")
    with pytest.raises(RendezvousError, match="received a stop request"):
        first.wait_newer(0, DEADLINE_S)
    assert first.stopped
    assert not first.broken


def test_a_lost_rank_that_nobody_can_follow_breaks_the_group(join: Join) -> None:
    first, second, spare = (join(number) for number in range(3))
    for member in (first, second):
        member.wait_newer(-1, DEADLINE_S)
    await_spares(first, 1)
    spare.close()
    await_spares(first, 0)  # else the launcher may notice the other loss first
    second.close()
    with pytest.raises(RendezvousError, match="0 spare processes are available for rank 1"):
        first.wait_newer(0, DEADLINE_S)
    assert first.broken


def test_the_group_of_an_evicted_member_is_broken(join: Join) -> None:
    first, second, _ = (join(number) for number in range(3))
    for member in (first, second):
        member.wait_newer(-1, DEADLINE_S)
    first.evict(["n1"], "an order")
    with pytest.raises(RendezvousError, match="another process has this rank"):
        second.wait_newer(0, DEADLINE_S)
    assert second.broken
    assert first.wait_newer(0, DEADLINE_S) is not None


def test_a_member_that_ends_by_itself_is_not_replaced(join: Join) -> None:
    first, second, _ = (join(number) for number in range(3))
    for member in (first, second):
        member.wait_newer(-1, DEADLINE_S)
    second.leave(ExitCode.CONDEMNED, "on an order to go back")
    with pytest.raises(RendezvousError, match="member 1 leaves with 90"):
        first.wait_newer(0, DEADLINE_S)


def test_all_are_released_once_all_are_done_however_late_they_ask(join: Join) -> None:
    first, second = join(0), join(1)
    for member in (first, second):
        member.wait_newer(-1, DEADLINE_S)
        member.send("done", generation=0)
    assert first.wait_newer(0, DEADLINE_S) is None
    assert join(2).wait_newer(-1, DEADLINE_S) is None


def test_a_change_is_told_in_the_reading_thread(join: Join) -> None:
    changed = threading.Event()
    first = join(0)
    first.on_change(changed.set)
    join(1)
    assert changed.wait(DEADLINE_S)


def test_the_end_of_the_launcher_is_a_stop(server: Server, join: Join) -> None:
    first, _ = join(0), join(1)
    first.wait_newer(-1, DEADLINE_S)
    server.close()
    with pytest.raises(RendezvousError, match="lost the connection to the launcher"):
        first.wait_newer(0, DEADLINE_S)
    assert not first.broken


def test_a_long_reason_is_cut_before_it_is_sent(server: Server, join: Join) -> None:
    first, _, _ = (join(number) for number in range(3))
    first.wait_newer(-1, DEADLINE_S)
    sent: list[bytes] = []

    class Noted:
        def sendall(self, line: bytes) -> None:
            sent.append(line)

    connection, first._connection = first._connection, Noted()  # type: ignore[assignment]  # only what it is used for
    first.evict(["n1"], "x" * 10_000)
    first.leave(1, "a\nb" + "x" * 10_000)
    first._connection = connection
    assert [len(json.loads(line)["why"]) for line in sent] == [REASON_CHARACTERS_MAX] * 2
    assert "a b" in json.loads(sent[1])["why"]


@pytest.mark.parametrize("message", [{"type": "spares"}, {"type": "news", "why": "x" * 10_000}, {}], ids=str)
def test_a_message_that_only_informs_is_passed_over_where_it_is_not_readable(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture, message: dict[str, object]
) -> None:
    first, second, _ = (join(number) for number in range(3))
    first.wait_newer(-1, DEADLINE_S)
    server._send_all(json.dumps(message).encode() + b"\n")
    second.close()
    assert first.wait_newer(0, DEADLINE_S) is not None
    assert not first.stopped
    assert "is passed over" in caplog.text or message.get("type") == "news"
    assert len(caplog.text) < 1000


def test_a_generation_that_is_not_readable_ends_the_connection(server: Server, join: Join) -> None:
    first, _ = join(0), join(1)
    first.wait_newer(-1, DEADLINE_S)
    server._send_all(b'{"type": "generation"}\n')
    with pytest.raises(RendezvousError, match="lost the connection to the launcher"):
        first.wait_newer(0, DEADLINE_S)

"""Who is believed in a group: by its key, its run, its rank and its name. Real processes over gloo, and a real meeting place."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from group_processes import DEADLINE_S, Group

from healthctl.process_supervision.port_allocation import find_free_ports
from preflight.group.group_command import group as command
from preflight.group.group_records import Accusation, ArrivalMessage, CoordinatorMessage, EndMessage, NodeReport
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.member_registration import gather_members
from preflight.group.rendezvous_store import RendezvousStore, UnreadableRecord
from preflight.results import Verdict

MakeGroup = Callable[..., Group]
KEY = "0123456789abcdef"
PASS = 'echo "{\\"verdict\\": \\"pass\\"}"'


@pytest.fixture
def make_group(tmp_path: Path) -> Iterator[MakeGroup]:
    made: list[Group] = []

    def make(world: int, *arguments: str, absent: int = 0, **shared: str) -> Group:
        made.append(Group(tmp_path, world, *arguments, absent=absent, shared=shared))
        return made[-1]

    yield make
    for group in made:
        group.close()


def after(flag: Path) -> tuple[str, str]:
    """An own test that passes once that file is there."""
    return "--own-test", f"sh -c 'while [ ! -e {flag} ]; do sleep 0.05; done; {PASS}'"


def test_a_forged_end_is_believed_by_nobody_and_told_to_nobody(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group(2, *after(tmp_path / "go"), "--tell", "--socket", str(tmp_path / "none"), HEALTHD_GROUP_KEY=KEY)
    place = RankPlacement(launcher="", rank=1, world=2, node="x", address="127.0.0.1", port=group.port)
    forger = RendezvousStore(place, DEADLINE_S, key=b"another key of somebody")
    nobody = Accusation(verdict=Verdict.FAIL, reason="forged")
    forger.put("call/0", CoordinatorMessage(end=EndMessage(exit_code=1, accused={0: nobody, 1: nobody})))
    (tmp_path / "go").touch()
    assert [group.code(node) for node in range(2)] == [3, 3]
    assert "another process wrote call/0" in group.words(0)
    assert "has another key" in group.words(1)
    assert "healthd at" not in group.words(0) + group.words(1)


def test_an_end_of_another_run_is_no_end_of_this(tmp_path: Path) -> None:
    (port,) = find_free_ports(1)
    host = RendezvousStore(
        RankPlacement(launcher="", rank=0, world=2, node="a", address="127.0.0.1", port=port, run="7"), 30, host=True
    )
    host.put("call/0", CoordinatorMessage(end=EndMessage(exit_code=0)))
    sealed = host.take("call/0", CoordinatorMessage, 5)
    assert sealed is not None
    other = RankPlacement(launcher="", rank=1, world=2, node="b", address="127.0.0.1", port=port, run="8")
    assert RendezvousStore(other, 30).take("call/0", CoordinatorMessage, 0.1) is None


def test_without_a_key_nobody_is_told() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "HEALTHD_GROUP_KEY": ""}
    done = CliRunner().invoke(command, ["--tell"], env=environ)
    assert done.exit_code == 2
    assert "HEALTHD_GROUP_KEY is not set" in done.output
    done = CliRunner().invoke(command, [], env=environ | {"HEALTHD_GROUP_KEY": "short"})
    assert "too short" in done.output


def test_two_processes_of_one_name_are_misconfigured(make_group: MakeGroup) -> None:
    group = make_group(3, "--no-own-test", absent=2)
    for rank in (1, 2):
        group.add(rank, "--no-own-test", HEALTHD_NODE="dup")
    assert [group.code(node) for node in range(3)] == [2, 2, 2], group.words(0)
    document = group.document()
    assert "two processes have the name dup (ranks 1, 2)" in document.reason
    assert document.exclude == ()


def test_a_rank_that_is_taken_and_a_group_of_another_size_are_refused(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group(2, *after(tmp_path / "go"), absent=1)
    for name in ("b", "c"):
        group.add(1, *after(tmp_path / "go"), HEALTHD_NODE=name)
    group.add(2, "--no-own-test", WORLD_SIZE="3")
    assert group.code(3) == 2
    assert "serves a group of 2" in group.words(3)
    while all(group.nodes[node].is_alive() for node in (1, 2)):
        group.nodes[1].join(0.1)
    loser, winner = (1, 2) if not group.nodes[1].is_alive() else (2, 1)
    assert group.code(loser) == 2
    assert f"rank 1 is taken by {'bc'[winner - 1]}" in group.words(loser)
    (tmp_path / "go").touch()
    assert [group.code(node) for node in (0, winner)] == [0, 0], group.words(0)


def test_a_fault_that_one_node_alone_was_given_marks_the_document(make_group: MakeGroup) -> None:
    group = make_group(3, "--no-own-test", absent=2)
    for rank in (1, 2):
        group.add(rank, "--no-own-test", *(("--inject", "corrupt:n1") if rank == 1 else ()))
    assert group.code(0) == 1, group.words(0)
    assert group.document().injected == ("corrupt:n1",)


def test_slow_own_tests_are_waited_for_and_who_cannot_be_read_is_named() -> None:
    (port,) = find_free_ports(1)

    def client(rank: int, key: bytes = b"") -> RendezvousStore:
        place = RankPlacement(launcher="", rank=rank, world=3, node=f"n{rank}", address="127.0.0.1", port=port)
        return RendezvousStore(place, 30, host=rank == 0, key=key)

    host = client(0)
    members = [client(1), client(2, b"another")]
    for rank in (0, 1):
        members[0].claim(f"here/{rank}", ArrivalMessage(rank=rank, node=f"n{rank}", nonce=str(rank)))
        if rank == 0:
            members[0].put("word/0", NodeReport(rank=0, node="n0", machine="m"))
    members[1].claim("here/2", ArrivalMessage(rank=2, node="n2", nonce="2"))
    late = threading.Timer(1.5, members[0].put, ("word/1", NodeReport(rank=1, node="n1", machine="n")))
    late.start()
    came = gather_members(
        host, RankPlacement(launcher="", rank=0, world=3, node="n0", address="", port=port), 0.5, 60.0
    )
    late.join()
    assert sorted(came.words) == [0, 1]
    assert came.missing == {}
    assert "has another key" in came.odd[2]
    with pytest.raises(UnreadableRecord):
        members[1].take("here/1", ArrivalMessage, 5)


def test_what_cannot_be_written_changes_no_verdict(tmp_path: Path) -> None:
    (port,) = find_free_ports(1)
    bad = tmp_path / "bad"
    environ = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    fails = """sh -c 'echo "{\\"verdict\\": \\"fail\\", \\"reason\\": \\"wrong\\"}"; exit 1'"""
    words = [sys.executable, "-m", "preflight.group", "--own-test", fails, "--exclude-file"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*words, str(bad)], env=environ | {"HEALTHD_NODE": "n0"}, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1, done.stderr
    assert b"could not be printed" in done.stderr
    assert bad.read_text() == "n0\n"
    done = subprocess.run([*words, str(tmp_path / "no" / "bad")], env=environ, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"cannot be written" in done.stderr

"""Many nodes at once, as real processes over gloo: each fault is committed, and the right one is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from group_processes import DEADLINE_S, FORKS, Group, host_meeting

from healthctl.process_supervision.port_allocation import find_free_ports
from preflight.fault_localisation.localisation_records import Kind
from preflight.group.group_records import ArrivalMessage, Standing
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.rendezvous_store import RendezvousLost, RendezvousStore
from preflight.results import Verdict

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)  # a node's own deadline comes first, and says what it said
MakeGroup = Callable[..., Group]
NO_OWN = ("--no-own-test",)


@pytest.fixture
def make_group(tmp_path: Path) -> Iterator[MakeGroup]:
    made: list[Group] = []

    def make(world: int, *arguments: str, absent: int = 0) -> Group:
        made.append(Group(tmp_path, world, *arguments, absent=absent))
        return made[-1]

    yield make
    for group in made:
        group.close()


def test_a_healthy_group_passes_on_every_node(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group(4, *NO_OWN, "--exclude-file", str(tmp_path / "exclude"))
    assert [group.code(node) for node in range(4)] == [0, 0, 0, 0], group.words(0)
    document = group.document()
    assert (document.verdict, document.reasons, document.exclude) == (Verdict.PASS, (), ())
    assert len(document.pairs) == 6
    assert all(pair.rate for pair in document.pairs)
    assert not document.compared  # four "nodes" on one machine
    assert (tmp_path / "exclude").read_text() == "\n"
    assert all((tmp_path / f"n{node}.out").read_text() == "" for node in (1, 2, 3))


@pytest.mark.parametrize(
    ("fault", "kind", "where"),
    [
        ("slow:n0=0.7", Kind.NODE, ("n0",)),
        ("corrupt:n3", Kind.NODE, ("n3",)),
        ("link:n1,n2=0.5", Kind.LINK, ("n1", "n2")),
    ],
)
def test_who_is_at_fault_is_named(make_group: MakeGroup, fault: str, kind: Kind, where: tuple[str, ...]) -> None:
    group = make_group(4, *NO_OWN, "--inject", fault)
    assert [group.code(node) for node in range(4)] == [1, 1, 1, 1], group.words(0)
    document = group.document()
    assert [(one.kind, one.where) for one in document.culprits] == [(kind, where)]
    assert set(document.exclude) <= set(where)
    assert document.injected == (fault,)
    if fault.startswith("corrupt"):
        assert "wrong data" in document.reason
        assert "slow" not in document.reason


def test_nodes_that_hang_or_die_are_named_and_the_others_go_on(make_group: MakeGroup) -> None:
    group = make_group(6, *NO_OWN, "--inject", "hang:n1", "--inject", "die:n4", "--pair-seconds", "12")
    assert [group.code(node) for node in (0, 2, 3, 5)] == [1, 1, 1, 1], group.words(0)
    document = group.document()
    assert sorted(one.where for one in document.culprits) == [("n1",), ("n4",)]
    assert document.exclude == ("n1", "n4")
    silent = [node.node for node in document.nodes if node.standing is Standing.SILENT]
    assert silent == ["n1", "n4"]
    assert set(document.cleared) == {"n0", "n2", "n3", "n5"}


def test_without_their_coordinator_the_others_end_inconclusive(make_group: MakeGroup) -> None:
    group = make_group(3, *NO_OWN, "--inject", "die:n0")
    assert [group.code(node) for node in (1, 2)] == [3, 3]
    assert "lost the connection to the rendezvous store" in group.words(1)


def test_who_never_comes_is_unknown_and_accused_of_nothing(make_group: MakeGroup) -> None:
    group = make_group(4, *NO_OWN, "--arrive-seconds", "4", absent=1)
    assert group.code(0) == 3
    document = group.document()
    assert (document.verdict, document.culprits) == (Verdict.INCONCLUSIVE, ())
    assert "rank3" in document.unknown


def test_the_nodes_own_tests_count(make_group: MakeGroup) -> None:
    own = (
        'case $HEALTHD_NODE in n1) w=fail c=1;; n2) w=misconfigured c=2;; *) w=pass c=0;; esac; '
        'echo "{\\"verdict\\": \\"$w\\", \\"reason\\": \\"$w here\\"}"; exit $c'
    )  # fmt: skip
    group = make_group(5, "--own-test", f"sh -c '{own}'")
    assert group.code(0) == 1
    assert group.code(4) == 1
    document = group.document()
    assert document.reasons == ("node n1: failed its own test: fail here", "node n2: misconfigured here")
    assert [node.standing for node in document.nodes] == [
        Standing.TESTED,
        Standing.UNFIT,
        Standing.WAITS,
        Standing.TESTED,
        Standing.TESTED,
    ]
    assert {pair.a for pair in document.pairs} | {pair.b for pair in document.pairs} == {"n0", "n3", "n4"}


def test_pods_of_an_indexed_job_meet_by_what_the_manifest_says(tmp_path: Path) -> None:
    (port,) = find_free_ports(1)
    environ = os.environ | {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "preflight.group", "--no-own-test", "--inject", "slow:pod-1=0.5", "--expect", "40"]
    pods = [
        subprocess.Popen(
            command, env=environ | {"JOB_COMPLETION_INDEX": str(index), "HEALTHD_NODE": f"pod-{index}"}, stdout=subprocess.PIPE
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        said = [pod.communicate(timeout=DEADLINE_S)[0].decode() for pod in pods]
    finally:
        for pod in pods:
            pod.kill()
            pod.wait()
    assert [pod.returncode for pod in pods] == [3, 3], said  # of two, nobody can say which is slow
    assert "INCONCLUSIVE" in said[0]
    assert said[1] == ""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_meeting_place_that_hangs_or_ends_keeps_nobody(number: signal.Signals) -> None:
    (port,) = find_free_ports(1)
    listens, tell = FORKS.Pipe()
    host = FORKS.Process(target=host_meeting, args=(port, tell), daemon=True)
    host.start()
    try:
        assert listens.recv() == "up"
        place = RankPlacement(launcher="", rank=1, world=2, node="b", address="127.0.0.1", port=port)
        meeting = RendezvousStore(place, 30)
        os.kill(host.pid or 0, number)
        with pytest.raises(RendezvousLost, match=r"does not respond|lost the connection"):
            meeting.take("here/0", ArrivalMessage, 0.5)
    finally:
        host.kill()
        host.join()

"""What the day's ranks are made of: the all-reduce with its time-out, and the store that their guards agree by."""

from __future__ import annotations

import functools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from bench.day.device import Device, State
from bench.ranks.collective import Collective, StuckError
from bench.ranks.generations import GenerationRank, Generations
from bench.ranks.shared_store import SharedStore
from healthctl.process_supervision.port_allocation import find_free_ports
from healthd.launcher.process_groups.group_membership import Member
from healthd.launcher.process_groups.rendezvous_server import RendezvousServer
from healthd.trainer.rendezvous_client import MEMBER

PATIENCE_S = 30.0


def test_every_rank_gets_the_sum_of_all() -> None:
    address = ("127.0.0.1", find_free_ports(1)[0])

    def rank(number: int) -> list[float]:
        with closing(Collective(address, number, 3, PATIENCE_S)) as together:
            return together.sum([number, 10.0 * number])

    with ThreadPoolExecutor(3) as ranks:
        assert list(ranks.map(rank, range(3))) == [[3, 30]] * 3


def test_a_rank_that_does_not_come_is_given_up() -> None:
    address = ("127.0.0.1", find_free_ports(1)[0])
    given_up = threading.Event()

    def rank(number: int) -> list[float]:
        with closing(Collective(address, number, 2, PATIENCE_S)) as together:
            if number:
                given_up.wait(PATIENCE_S)
                return []
            together.patience(0.1)
            try:
                return together.sum([1.0])
            finally:
                given_up.set()

    with ThreadPoolExecutor(2) as ranks:
        waits, _ = ranks.submit(rank, 0), ranks.submit(rank, 1)
        with pytest.raises(StuckError, match="given up"):
            waits.result(PATIENCE_S)


def test_the_store_counts_every_rank_once_and_one_word_wins(tmp_path: Path) -> None:
    def rank(number: int) -> tuple[int, bytes]:
        store = SharedStore(tmp_path / "store.json")
        return store.add("votes", 1), store.compare_set("step", "", str(number))

    with ThreadPoolExecutor(8) as ranks:
        answers = list(ranks.map(rank, range(8)))

    assert sorted(votes for votes, _ in answers) == list(range(1, 9))
    assert len({word for _, word in answers}) == 1


@pytest.mark.parametrize(
    ("cure", "by", "enough"), [("reset", "reset", True), ("repair", "reset", False), ("reset", "repair", True)]
)
def test_a_cure_helps_if_it_is_strong_enough(tmp_path: Path, cure: str, by: str, *, enough: bool) -> None:
    device = Device(tmp_path)
    device.make("n1", 1)
    device.write(State(1, "hang", "hang", cure=cure))
    device.driver(("lost 3",))

    assert device.cured(by) is enough

    assert (device.read().stays == "") is enough
    assert ("lost 3" not in (tmp_path / "nvml").read_text()) is enough


def test_a_rank_of_another_generation_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(3) as ranks:
        address = server.getsockname()

        def rank(number: int, generation: int, patience_s: float = PATIENCE_S) -> list[float]:
            mine = {"server": server} if number == 0 else {}
            with closing(Collective(address, number, 2, patience_s, generation=generation, **mine)) as together:
                return together.sum([number + 10.0 * generation])

        late = ranks.submit(rank, 1, 1, 1.0)  # refused, or never accepted: then only its own patience ends it
        now = [ranks.submit(rank, number, 2) for number in range(2)]
        assert [each.result(PATIENCE_S) for each in now] == [[41]] * 2
        with pytest.raises(StuckError):
            late.result(PATIENCE_S)


def test_a_rank_that_is_in_the_next_generation_first_is_met_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as ranks:
        address = server.getsockname()

        def early() -> list[float]:
            with closing(Collective(address, 1, 2, PATIENCE_S, generation=2)) as together:
                return together.sum([1.0])

        waits = ranks.submit(early)
        with pytest.raises(StuckError, match="not all 2 ranks"):
            Collective(address, 0, 2, 1.0, server=server, generation=1)
        with closing(Collective(address, 0, 2, PATIENCE_S, server=server, generation=2)) as together:
            assert together.sum([2.0]) == [3.0]
        assert waits.result(PATIENCE_S) == [3.0]


def test_the_ranks_that_are_left_go_on_with_the_spare_in_the_lost_ones_place() -> None:
    server = RendezvousServer([Member(number, f"n{number}") for number in range(3)], world=2)
    seen: dict[int, list[tuple[int, int, float]]] = {number: [] for number in range(3)}
    gone, went_on = threading.Event(), threading.Event()

    def train(member: int, generations: Generations, place: GenerationRank) -> None:
        place.entered()
        together = place.together
        seen[member].append((place.generation.number, place.rank, together.sum([1.0 + member])[0]))
        if place.generation.number:
            went_on.set()
            return
        if member == 1:
            generations._rendezvous.close()
            gone.set()
            assert went_on.wait(PATIENCE_S / 2)
            raise StuckError("it was frozen")
        gone.wait(PATIENCE_S)
        together.sum([0.0])  # in which it waits for the lost one

    def process(member: int) -> None:
        with closing(Generations(PATIENCE_S, server.environ | {MEMBER: str(member)})) as generations:
            generations.run(functools.partial(train, member, generations))

    with closing(server), ThreadPoolExecutor(3) as ranks:
        runs = [ranks.submit(process, member) for member in range(3)]
        with pytest.raises(StuckError):
            runs[1].result(PATIENCE_S)
        for member in (0, 2):
            runs[member].result(PATIENCE_S)
    assert seen == {0: [(0, 0, 3.0), (1, 0, 4.0)], 1: [(0, 1, 3.0)], 2: [(1, 1, 4.0)]}


def test_ranks_whose_collective_failed_though_all_live_go_on_in_a_new_generation() -> None:
    server = RendezvousServer([Member(number, f"n{number}") for number in range(2)], world=2)
    seen: dict[int, list[int]] = {0: [], 1: []}

    def train(member: int, place: GenerationRank) -> None:
        place.entered()
        seen[member].append(place.generation.number)
        if not place.generation.number:
            raise StuckError("a line is bad")

    def process(member: int) -> None:
        with closing(Generations(PATIENCE_S, server.environ | {MEMBER: str(member)})) as generations:
            generations.run(functools.partial(train, member))

    with closing(server), ThreadPoolExecutor(2) as ranks:
        for run in [ranks.submit(process, member) for member in range(2)]:
            run.result(PATIENCE_S)
    assert seen == {0: [0, 1], 1: [0, 1]}

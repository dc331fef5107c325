"""What the day's ranks are made of: the all-reduce with its time-out, and the store that their guards agree by."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from bench.day.collective import Collective, StuckError
from bench.day.device import Device, State
from bench.day.shared_store import SharedStore
from healthctl.process_supervision.port_allocation import find_free_ports

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

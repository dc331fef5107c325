"""A guard whose launcher wants the job to grow: the ranks pause at one step, and no rank ends."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from healthd.trainer.agreement import GRACEFUL, LocalStore
from healthd.trainer.beacons.beacon import Beacon, MailboxOrder, NullBeacon, RankPlacement, withdraw_page
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.exit_codes import Leave
from healthd.trainer.guard import Guard
from healthd.trainer.rank_replacement import GROWTH, NextGeneration, NoRankReplacer, is_done_by_replacement

GROW = MailboxOrder(f"{GROWTH}1-1", GRACEFUL, "the job grows", (), 2e9)


class Growing(NoRankReplacer):
    """A launcher without a spare that has asked the ranks to pause."""

    enabled = True

    def __init__(self, order: MailboxOrder | None) -> None:
        self._order = order
        self.left: list[int] = []

    @property
    def noticed(self) -> bool:
        return self._order is not None

    def take(self) -> MailboxOrder | None:
        order, self._order = self._order, None
        return order

    def leave(self, code: int, why: str) -> None:  # noqa: ARG002 - as `RankReplacer` has it
        self.left.append(code)


def save(*, fails: bool) -> None:
    if fails:
        raise RuntimeError("a peer is gone")


def train(guard: Guard, steps: int, together: threading.Barrier, fails: Collection[int] = ()) -> tuple[int, str]:
    """To the end, or to where the guard unwinds it; how far, and how it ended."""
    step = -1
    try:
        for step in range(steps):
            with guard.step(step) as s:
                together.wait(10.0)
                if s.checkpoint_due:
                    assert s.swap
                    save(fails=step in fails)
                    s.saved("memory")
    except NextGeneration:
        return step, "next generation"
    except Leave as leave:
        return step, f"leave {leave.code}"
    except RuntimeError as error:
        return step, str(error)
    return step, "done"


def ranks(orders: list[MailboxOrder | None], fails: Collection[int] = ()) -> list[tuple[int, str]]:
    store, together = LocalStore(), threading.Barrier(len(orders))
    ends: dict[int, tuple[int, str]] = {}

    def run(rank: int) -> None:
        guard = Guard(
            RankPlacement("j", 1, rank, len(orders), node=f"n{rank}"), NullBeacon(), store, termination_seconds=0
        )
        guard.enable_swap(Growing(orders[rank]))
        ends[rank] = train(guard, 9, together, fails)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(orders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return [ends[rank] for rank in range(len(orders))]


def test_all_ranks_pause_after_one_step_though_no_spare_would_take_the_place_of_one_that_leaves() -> None:
    first, *others = ranks([GROW] * 3)
    assert first[1] == "next generation"
    assert others == [first] * 2


def test_one_rank_that_was_not_asked_keeps_all_from_pausing() -> None:
    assert ranks([GROW, GROW, None]) == [(8, "done")] * 3


def test_a_peer_that_is_lost_as_the_ranks_pause_ends_nobody() -> None:
    found = ranks([GROW] * 2, fails=range(9))
    assert {why for _, why in found} == {"a peer is gone"}


@pytest.mark.parametrize(
    ("orders", "swaps"),
    [
        ((GROW,), True),
        ((GROW, MailboxOrder("o", GRACEFUL, "", ("n1",), 2e9)), True),
        ((GROW, MailboxOrder("sigterm", GRACEFUL, "", (), 2e9)), False),
        ((MailboxOrder("o", "revert", "", ("n1",), 2e9),), False),
        ((), False),
    ],
)
def test_what_a_job_need_not_stop_for(orders: tuple[MailboxOrder, ...], swaps: bool) -> None:  # noqa: FBT001 - a parameter
    assert is_done_by_replacement(orders, GRACEFUL) is swaps


def test_a_page_is_withdrawn_by_its_own_process_only(tmp_path: Path) -> None:
    prepare_directory(str(tmp_path / "pages"))
    place = RankPlacement("j", 1, 3, 4)
    page = Beacon.create(str(tmp_path / "pages"), place)
    path = Path(page.path)
    page.end()
    withdraw_page(str(tmp_path / "pages"), place._replace(rank=2))
    assert path.exists()
    withdraw_page(str(tmp_path / "pages"), place)
    assert not path.exists()
    page.close()

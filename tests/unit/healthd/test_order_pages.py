"""Trainer orders over pages that are damaged, gone or made anew: what cannot be read is never taken for absent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.collectors.beacons import BeaconCollector
from healthd.orders import trainer_order
from healthd.orders.order_task import make_order_update
from healthd.orders.rank_answers import (
    OrderedRank,
    RankVerdict,
    collect_all_figures,
    combine_user_verdicts,
    judge_user_ranks,
)
from healthd.orders.trainer_order import TrainerTask
from healthd.trainer.beacons import beacon_page, page_reader
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_all_pages, read_page, withdraw_page
from healthd.trainer.beacons.beacon_page import Acknowledgement, BeaconError, MailboxOrder, OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

NOW = 1_700_000_000.0
ORDER = MailboxOrder("o1", "checkpoint_then_eject", "r", (), NOW + 60)
SAVED = Acknowledgement("o1", OrderOutcome.LEFT, NOW, 7, NOW + 1, NOW + 2, "/c/7", NOW + 3)


@pytest.fixture
def beacon(tmp_path: Path) -> Iterator[Beacon]:
    tmp_path.chmod(0o700)
    made = Beacon.create(str(tmp_path), RankPlacement("j", 1, 0, 2, 0, "n1"))
    made.begin_step(3)
    yield made
    made.close()


def task(
    place: Path, kind: OrderKind = OrderKind.CHECKPOINT_THEN_EJECT, before: OrderUpdate | None = None
) -> TrainerTask:
    order = Order(
        id="o1", kind=kind, node="n1", issued_at=NOW, expires_at=NOW + 60, incident="i", reason="r", job="j", attempt=1
    )
    return TrainerTask(order, before or make_order_update(order, OrderState.RECEIVED, NOW, ""), str(place))


def step(each: TrainerTask, now: float = NOW) -> OrderUpdate:
    update = each.step(now)
    assert update is not None
    return update


def damage(path: str, at: int) -> None:
    with Path(path).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


class Killed(BaseException):
    """kill -9, as far as a test can."""


def post_and_die(path: str, order: MailboxOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon is killed between the two writes of an order."""
    really, count = os.pwrite, [0]

    def once(descriptor: int, data: bytes, at: int) -> int:
        count[0] += 1
        if count[0] == 2:
            raise Killed
        return really(descriptor, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", once)
        with pytest.raises(Killed):
            post_order(path, order)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_daemon_killed_while_it_wrote_an_order_orders_again(
    beacon: Beacon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, earlier: bool
) -> None:
    if earlier:
        post_order(beacon.path, ORDER._replace(id="o0", reason="of the week before"))
        assert beacon.poll() is not None
    post_and_die(beacon.path, ORDER, monkeypatch)
    assert beacon.poll() is None

    (view,), errors = read_all_pages(str(tmp_path))
    assert (view.alive, view.order, [error.field for error in errors]) == (True, None, ["mailbox"])
    sample = BeaconCollector(tmp_path).read(NOW)
    assert [rank.step for rank in sample.ranks] == [3]
    assert list(sample.broken) == [Path(beacon.path).name]

    again = task(tmp_path)
    assert step(again).state is OrderState.RUNNING
    assert beacon.poll() == ORDER
    assert read_page(beacon.path).damaged == {}
    beacon.acknowledge(SAVED)
    assert step(again).state is OrderState.SUCCEEDED


@pytest.mark.parametrize("block", ["STATE", "ACKNOWLEDGEMENT", "MAILBOX"])
def test_a_rank_whose_page_is_damaged_in_a_part_is_ordered_and_waited_for(
    beacon: Beacon, tmp_path: Path, block: str
) -> None:
    beacon.acknowledge(SAVED._replace(order="o0"))
    post_order(beacon.path, ORDER._replace(id="o0"))
    collector = BeaconCollector(tmp_path)
    before = collector.read(NOW).ranks
    damage(beacon.path, getattr(beacon_page, f"{block}_AT") + 16)

    assert list(read_page(beacon.path).damaged) == [block.lower()]
    assert collector.read(NOW + 1).ranks == before, "shown as it was last read"
    each = task(tmp_path)
    assert step(each).state is OrderState.RUNNING
    assert beacon.poll() == ORDER
    assert each.step(NOW) is None
    end = step(each, NOW + 61)
    assert (end.state, end.detail.split(": rank")[0]) == (OrderState.FAILED, "still running when the order expired")


def test_the_order_follows_a_process_to_the_page_of_its_next_rank(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = RankPlacement("j", 1, 1, 2, 0, "n1")
    with contextlib.closing(Beacon.create(str(tmp_path), place)) as before:
        each = task(tmp_path, OrderKind.ABORT)
        assert step(each).state is OrderState.RUNNING
        before.acknowledge(SAVED)  # too late for the daemon to read it
    withdraw_page(str(tmp_path), place)
    assert each.step(NOW) is None, "it has no other page yet"
    with contextlib.closing(Beacon.create(str(tmp_path), place._replace(rank=0, world=1))) as now:
        assert each.step(NOW) is None
        order = now.poll()
        assert order is not None
        assert order.id == "o1"
        now.acknowledge(Acknowledgement("o1", OrderOutcome.LEFT, NOW))
        assert step(each).state is OrderState.SUCCEEDED


@pytest.mark.parametrize("kind", [OrderKind.ABORT, OrderKind.CHECKPOINT_THEN_EJECT])
def test_a_page_that_its_process_made_anew_is_ordered_again(beacon: Beacon, tmp_path: Path, kind: OrderKind) -> None:
    each = task(tmp_path, kind)
    step(each)
    beacon.acknowledge(SAVED)  # too late for the daemon to read it
    beacon.end()
    with contextlib.closing(Beacon.create(str(tmp_path), RankPlacement("j", 1, 0, 2, 0, "n1"))) as now:
        assert each.step(NOW) is None
        assert now.poll() is not None
        now.acknowledge(Acknowledgement("o1", OrderOutcome.LEFT, NOW))
        assert step(each).state is OrderState.SUCCEEDED


def test_a_mailbox_that_is_damaged_later_does_not_end_the_wait(beacon: Beacon, tmp_path: Path) -> None:
    each = task(tmp_path)
    step(each)
    damage(beacon.path, beacon_page.MAILBOX_AT + 16)
    assert each.step(NOW) is None
    beacon.acknowledge(SAVED)
    damage(beacon.path, beacon_page.ACKNOWLEDGEMENT_AT + 16)
    assert each.step(NOW) is None
    damage(beacon.path, beacon_page.ACKNOWLEDGEMENT_AT + 16)  # whole again
    assert step(each).state is OrderState.SUCCEEDED


@pytest.mark.parametrize("kind", [OrderKind.CHECKPOINT_THEN_EJECT, OrderKind.ABORT])
def test_a_page_that_does_not_say_whose_it_is_is_never_nobodys(beacon: Beacon, tmp_path: Path, kind: OrderKind) -> None:
    damage(beacon.path, beacon_page.IDENTITY_AT + 20)
    end = step(task(tmp_path, kind))
    assert end.state is OrderState.FAILED
    assert f"{beacon.path}: identity: checksum" in end.detail


@pytest.mark.parametrize("kind", [OrderKind.CHECKPOINT_THEN_EJECT, OrderKind.ABORT])
def test_nor_is_it_forgotten_beside_others(beacon: Beacon, tmp_path: Path, kind: OrderKind) -> None:
    other = Beacon.create(str(tmp_path), RankPlacement("j", 1, 1, 2, 1, "n1"))
    damage(beacon.path, beacon_page.IDENTITY_AT + 20)
    each = task(tmp_path, kind)
    assert step(each).state is OrderState.RUNNING
    other.acknowledge(SAVED)
    end = step(each)
    assert (end.state, "identity" in end.detail) == (OrderState.FAILED, True)
    other.close()


def test_rubbish_and_other_jobs_pages_do_not_keep_a_node_from_being_free(beacon: Beacon, tmp_path: Path) -> None:
    (tmp_path / "j.1.0.5.beacon").touch()
    os.rename(beacon.path, tmp_path / "j.1.1.0.beacon")  # noqa: PTH104 - as another job's, called j.1
    damage(str(tmp_path / "j.1.1.0.beacon"), beacon_page.IDENTITY_AT + 20)
    (tmp_path / "j.1.7.beacon").touch()
    (tmp_path / "j.1.8.beacon").symlink_to("/nowhere")
    end = step(task(tmp_path))
    assert (end.state, end.data) == (OrderState.SUCCEEDED, {"ranks": 0})


def test_a_page_that_is_gone_while_its_process_lives_is_waited_for(beacon: Beacon, tmp_path: Path) -> None:
    each = task(tmp_path)
    posted = step(each)
    Path(beacon.path).unlink()
    assert each.step(NOW) is None
    assert step(each, NOW + 61).state is OrderState.FAILED
    end = step(task(tmp_path, before=posted))
    assert (end.state, end.detail) == (OrderState.FAILED, "1 page vanished")


def test_a_page_made_anew_keeps_the_answer_of_the_process_before(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    make = "from healthd.trainer.beacons.beacon import *; b = Beacon.create({!r}, RankPlacement('j', 1, 0, 1)); print(flush=True); input()"
    argv = [sys.executable, "-c", make.format(str(tmp_path))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        each = task(tmp_path)
        step(each)
        child.communicate(b"\n")
    again = Beacon.create(str(tmp_path), RankPlacement("j", 1, 0, 1))
    end = step(each)
    assert (end.state, end.detail) == (OrderState.FAILED, "rank 0 ended, and its page is missing")
    assert again.poll() is None
    again.close()


def test_what_a_rank_wrote_as_it_ended_is_read(beacon: Beacon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of a page and the look at its process, that answered and ended."""
    each = task(tmp_path)
    step(each)
    really = page_reader.process_alive

    def ends(pid: int, started: int) -> bool:
        assert really(pid, started)
        beacon.acknowledge(SAVED)
        return False

    monkeypatch.setattr(page_reader, "process_alive", ends)
    assert step(each).state is OrderState.SUCCEEDED


def test_more_ranks_than_any_user_has_are_not_called_done(
    beacon: Beacon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("healthd.orders.trainer_order.RANKS_PER_USER", 1)
    other = Beacon.create(str(tmp_path), RankPlacement("j", 1, 1, 2, 1, "n1"))
    each = task(tmp_path)
    assert step(each).data["ranks"] == 1
    for one in (beacon, other):
        one.acknowledge(SAVED)
    end = step(each)
    assert (end.state, f"more than 1 pages of the job are user {os.geteuid()}'s" in end.detail) == (
        OrderState.FAILED,
        True,
    )
    other.close()


def test_an_order_that_no_mailbox_takes_fails_and_one_that_one_refuses_is_tried_again(
    beacon: Beacon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Beacon.create(str(tmp_path), RankPlacement("j", 1, 1, 2, 1, "n1"))
    refused = {beacon.path, other.path}

    def post(path: str, order: MailboxOrder) -> int:
        if path in refused:
            raise BeaconError(path, "mailbox", "not now")
        return post_order(path, order)

    monkeypatch.setattr("healthd.orders.trainer_order.post_order", post)
    assert step(task(tmp_path)).state is OrderState.FAILED
    refused.remove(other.path)
    each = task(tmp_path)
    assert "not now" in step(each).detail
    assert beacon.poll() is None
    refused.clear()
    each.step(NOW)
    assert beacon.poll() == ORDER
    other.close()


outcomes = st.sampled_from([*OrderOutcome])
answers = st.none() | st.builds(
    Acknowledgement, st.just("o1"), outcomes, st.just(NOW), st.integers(-1, 9), saved_at=st.sampled_from([0.0, NOW])
)
ranks = st.builds(
    OrderedRank,
    st.uuids().map(str),
    st.integers(1, 3),
    st.integers(-1, 9),
    st.just(1),
    st.just(1),
    st.booleans(),
    st.booleans(),
    answers,
)
KINDS = [OrderKind.CHECKPOINT_THEN_EJECT, OrderKind.REVERT, OrderKind.ABORT]


@given(st.lists(ranks, min_size=1), st.sampled_from(KINDS))
@settings(deadline=None)
def test_no_user_makes_good_what_another_did_not(found: list[OrderedRank], kind: OrderKind) -> None:
    by_user: dict[int, list[OrderedRank]] = {}
    for rank in found:
        by_user.setdefault(rank.uid, []).append(rank)
    each = {uid: judge_user_ranks(kind, of_user) for uid, of_user in by_user.items()}
    together = combine_user_verdicts(each)
    assert (together.state is OrderState.SUCCEEDED) == all(v.state is OrderState.SUCCEEDED for v in each.values())
    if len(each) > 1:
        assert all(f"user {uid}: {verdict.state.value}" in together.detail for uid, verdict in each.items())
        assert not {"agreed_step", "path"} & collect_all_figures(by_user, NOW).keys()
    assert all(
        v.state is not OrderState.SUCCEEDED for uid, v in each.items() if any(r.number < 0 for r in by_user[uid])
    )


def test_of_very_many_users_the_first_are_told_and_the_others_counted() -> None:
    together = combine_user_verdicts({uid: RankVerdict(OrderState.FAILED, "x" * 999) for uid in range(100)})
    assert len(together.detail) <= 1000
    assert together.detail.endswith("and 92 users more")


@pytest.mark.parametrize("left", [True, False])
def test_a_page_that_is_withdrawn_while_the_order_is_written_is_looked_for_again(
    beacon: Beacon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, left: bool
) -> None:
    really, calls = trainer_order.post_order, []

    def withdraw_first(path: str, order: MailboxOrder) -> None:
        calls.append(path)
        if len(calls) == 1:
            withdraw_page(str(tmp_path), RankPlacement("j", 1, 0, 2, 0, "n1"))
            if not left:  # its process holds another rank now
                moved.append(Beacon.create(str(tmp_path), RankPlacement("j", 1, 1, 2, 0, "n1")))
        really(path, order)

    moved: list[Beacon] = []
    monkeypatch.setattr(trainer_order, "post_order", withdraw_first)
    each = task(tmp_path)
    assert each.step(NOW) is None
    update = each.step(NOW + 1)
    assert update is not None
    assert update.state is (OrderState.SUCCEEDED if left else OrderState.RUNNING), update.detail
    if moved:
        order = read_page(calls[-1]).order
        assert order is not None
        assert order.id == "o1"
        moved[0].close()

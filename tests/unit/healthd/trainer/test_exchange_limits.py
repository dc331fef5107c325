"""Waiting for ranks of a generation that has ended: it ends, too."""

from __future__ import annotations

import threading

import pytest

from healthd.trainer.agreement import LocalStore
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.checkpoint_storage.save_rounds import OutcomeUnknownError, RoundOutcome, SaveRounds
from healthd.trainer.exchange_limits import ExchangeLimits, GenerationOverError, GenerationStore, await_all_ranks
from healthd.trainer.rank_replacement import NextGeneration
from tests.unit.healthd.trainer.test_save_rounds import Board

DEADLINE_S = 10.0


def over_soon() -> threading.Event:
    over = threading.Event()
    threading.Timer(0.1, over.set).start()
    return over


def test_ranks_meet_whatever_the_order_in_which_they_come() -> None:
    store = LocalStore()
    others = [
        threading.Thread(target=await_all_ranks, args=(store, "here", 3, ExchangeLimits(DEADLINE_S))) for _ in range(2)
    ]
    for each in others:
        each.start()
    await_all_ranks(store, "here", 3, ExchangeLimits(DEADLINE_S))
    for each in others:
        each.join(DEADLINE_S)
        assert not each.is_alive()


def test_a_rank_that_was_lost_on_the_way_is_not_waited_for() -> None:
    with pytest.raises(GenerationOverError):
        await_all_ranks(LocalStore(), "here", 2, ExchangeLimits(DEADLINE_S, over=over_soon().is_set))


def test_a_rank_that_does_not_come_is_counted() -> None:
    with pytest.raises(CheckpointError, match="1 of 2 ranks arrived within 0 s"):
        await_all_ranks(LocalStore(), "here", 2, ExchangeLimits(0.0))


def test_a_round_with_a_lost_rank_ends_with_its_generation() -> None:
    over, board = threading.Event(), Board()
    ranks = [SaveRounds(lambda: board, rank, 2, ExchangeLimits(DEADLINE_S, over=over.is_set)) for rank in range(2)]
    for each in ranks:
        each.begin()
    over.set()
    with pytest.raises(OutcomeUnknownError, match="has ended"):
        ranks[1].outcome()
    ranks[1].end(well=False)
    ranks[0].end(well=True)
    ranks[1].begin()
    with pytest.raises(GenerationOverError):
        ranks[1].meet()


def test_what_was_concluded_is_known_though_the_generation_has_ended() -> None:
    board = Board()
    ranks = [SaveRounds(lambda: board, rank, 2, ExchangeLimits(DEADLINE_S, over=lambda: True)) for rank in range(2)]
    for each in ranks:
        each.begin()
    assert ranks[0].claim() is None
    ranks[0].conclude(RoundOutcome("held"))
    assert ranks[1].outcome() == RoundOutcome("held")


def test_nobody_asks_the_store_of_a_generation_that_has_ended() -> None:
    over = threading.Event()
    store = GenerationStore(LocalStore(), over.is_set)
    assert store.add("key", 2) == 2
    assert store.compare_set("other", "", "x") == b"x"
    over.set()
    with pytest.raises(NextGeneration):
        store.add("key", 1)
    with pytest.raises(NextGeneration):
        store.compare_set("other", "x", "y")

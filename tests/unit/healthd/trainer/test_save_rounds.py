"""Whatever becomes of an exchange or of the store, no two ranks are told different outcomes of a save."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.checkpoint_storage.save_rounds import OutcomeUnknownError, RoundOutcome, SaveRounds, StoreLostError
from healthd.trainer.exchange_limits import ExchangeLimits

T = TypeVar("T")
DEADLINE_S = 60.0
NO_TIME_S = 0.0


class Board:
    """A store in this process; `broken` calls fail, before or after they had their effect."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def add(self, key: str, amount: int, /) -> int:
        with self.lock:
            value = int(self.held.get(key, b"0")) + amount
            self.held[key] = b"%d" % value
            return value

    def check(self, keys: list[str], /) -> bool:
        return all(key in self.held for key in keys)

    def get(self, key: str, /) -> bytes:
        return self.held[key]

    def set(self, key: str, value: str, /) -> None:
        self.held[key] = value.encode()

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        assert expected == ""
        with self.lock:
            return self.held.setdefault(key, desired.encode())


class Flaky(Board):
    """Calls fail as `plan` says, one entry each: "" works, "before" and "after" its effect; what comes then, works."""

    def __init__(self, board: Board, plan: list[str]) -> None:
        super().__init__()
        self.held, self.lock, self.plan = board.held, board.lock, plan

    def add(self, key: str, amount: int, /) -> int:
        return self._maybe(lambda: super(Flaky, self).add(key, amount))

    def set(self, key: str, value: str, /) -> None:
        return self._maybe(lambda: super(Flaky, self).set(key, value))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        return self._maybe(lambda: super(Flaky, self).compare_set(key, expected, desired))

    def _maybe(self, deed: Callable[[], T]) -> T:
        fault = self.plan.pop(0) if self.plan else ""
        if fault == "before":
            raise ConnectionError("the request is lost")
        result = deed()
        if fault == "after":
            raise ConnectionError("the reply is lost")
        return result


def rounds_of(world: int, seconds: float = DEADLINE_S) -> list[SaveRounds]:
    board = Board()
    return [SaveRounds(lambda: board, rank, world, ExchangeLimits(seconds)) for rank in range(world)]


def together(*deeds: Callable[[], object]) -> list[object]:
    """Each in a thread; what it returned or raised."""
    found: list[object] = [None] * len(deeds)

    def run(number: int) -> None:
        try:
            found[number] = deeds[number]()
        except CheckpointError as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(deeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_see_alike_whether_all_came_out_well() -> None:
    ranks = rounds_of(3)
    assert together(*(each.begin for each in ranks)) == [True] * 3
    for each in ranks:
        each.end(well=True)
    assert together(*(each.begin for each in ranks)) == [True] * 3
    for number, each in enumerate(ranks):
        each.end(well=number != 2)
    assert together(*(each.begin for each in ranks)) == [False] * 3
    assert together(*(each.meet for each in ranks)) == [None] * 3


def test_a_late_rank_is_waited_for_and_who_gave_up_takes_the_others_along() -> None:
    early, late = rounds_of(2)
    hasty = SaveRounds(lambda: early._board, 0, 2, ExchangeLimits(NO_TIME_S))
    for each in (hasty, late):
        assert each.begin()
    hasty.end(well=True)
    with pytest.raises(CheckpointError, match="a rank has not left the previous save or load within 0 s"):
        hasty.begin()
    hasty.end(well=False)

    late.end(well=True)
    with pytest.raises(CheckpointError, match="a rank has given up"):
        late.begin()
    late.end(well=False)
    assert together(hasty.begin, late.begin) == [False, False]


def test_what_the_first_rank_concluded_reaches_one_whose_exchange_broke() -> None:
    first, other = rounds_of(2)
    for each in (first, other):
        each.begin()
    assert first.claim() is None
    [outcome, _] = together(other.outcome, lambda: first.conclude(RoundOutcome("path")))
    assert outcome == RoundOutcome("path")


def test_who_gives_up_before_the_first_rank_concludes_decides_for_all() -> None:
    first, other = rounds_of(2, NO_TIME_S)
    for each in (first, other):
        each.begin()
    given_up = other.outcome()
    assert given_up == RoundOutcome(why="rank 1 has waited 0 s for rank 0", unreachable=True)
    assert first.claim() == given_up
    first.conclude(given_up)
    assert other.outcome() == given_up


def test_who_gives_up_while_the_first_rank_concludes_knows_that_he_does_not_know() -> None:
    first, other = rounds_of(2, NO_TIME_S)
    for each in (first, other):
        each.begin()
    assert first.claim() is None
    with pytest.raises(OutcomeUnknownError):
        other.outcome()


@given(st.data())
def test_no_two_ranks_are_told_different_outcomes(data: st.DataObject) -> None:
    """Any order of the first rank's and the others' deeds; each call may find its connection dead, before or after its effect."""
    board = Board()
    faults = st.lists(st.sampled_from(["", "", "before", "after"]), max_size=6)

    def connect(rank: int) -> Callable[[], Board]:
        boards = iter([Flaky(board, data.draw(faults))])
        return lambda: next(boards, board)  # a connection made anew works

    ranks = [SaveRounds(connect(rank), rank, 3, ExchangeLimits(NO_TIME_S)) for rank in range(3)]
    for each in ranks:
        each.begin()
    told: dict[int, RoundOutcome] = {}
    done = False

    def conclude() -> None:
        nonlocal done
        given_up = ranks[0].claim()
        done = given_up is None
        told[0] = given_up or RoundOutcome("path")

    def ask(rank: int) -> None:
        try:
            told[rank] = ranks[rank].outcome()
        except OutcomeUnknownError:
            return

    deeds: list[Callable[[], object]] = [conclude, lambda: ranks[0].conclude(told[0])]
    for asked in data.draw(st.permutations([1, 2, None, None])):
        deeds.pop(0)() if asked is None else ask(asked)
    assert len(set(told.values())) == 1
    assert done == bool(told[0].result)
    for rank in (1, 2):
        assert ranks[rank].outcome() == told[0]


class Gone(Board):
    """Out of reach for good."""

    def __getattribute__(self, name: str) -> object:
        raise ConnectionError("broken pipe")


def test_without_the_store_the_exchange_goes_on_as_long_as_it_works() -> None:
    alone = SaveRounds(Gone, 0, 2, ExchangeLimits(DEADLINE_S))
    for _ in range(3):
        assert alone.begin()
        assert alone.claim() is None
        alone.conclude(RoundOutcome("path"))
        alone.end(well=True)
    assert alone.begin()
    with pytest.raises(OutcomeUnknownError, match="the job's store is unreachable: broken pipe"):
        alone.outcome()
    alone.end(well=False)
    with pytest.raises(StoreLostError):
        alone.begin()


def test_what_could_not_be_told_is_told_when_the_store_is_back() -> None:
    board = Board()
    boards: list[Board] = [board]
    away, other = (
        SaveRounds(lambda: boards[0], 0, 2, ExchangeLimits(DEADLINE_S)),
        SaveRounds(lambda: board, 1, 2, ExchangeLimits(DEADLINE_S)),
    )
    for each in (away, other):
        each.begin()
    away._board = boards[0] = Gone()
    away.end(well=False)
    other.end(well=True)
    boards[0] = board
    assert together(away.begin, other.begin) == [False, False]

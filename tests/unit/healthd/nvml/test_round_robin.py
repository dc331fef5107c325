from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from healthd.nvml.round_robin import RoundRobin


def test_the_first_round_is_quick_and_later_ones_are_spread() -> None:
    rota = RoundRobin(4, 60.0, first_s=4.0, began=100.0)
    turns = {second: sorted(rota.turns(100.0 + second)) for second in range(80)}
    assert {second: members for second, members in turns.items() if members} == {
        0: [0],
        1: [1],
        2: [2],
        3: [3],
        18: [0],
        33: [1],
        48: [2],
        63: [3],
        78: [0],
    }


def test_a_first_round_of_no_length_is_everybody_at_once() -> None:
    assert sorted(RoundRobin(3, 10.0, first_s=0.0, began=5.0).turns(5.0)) == [0, 1, 2]
    assert RoundRobin(0, 10.0, first_s=0.0, began=5.0).turns(1e9) == frozenset()


def test_nothing_is_made_up_for_after_a_long_pause() -> None:
    rota = RoundRobin(3, 30.0, first_s=0.0, began=0.0)
    assert [sorted(rota.turns(at)) for at in (0.0, 1000.0, 1001.0, 1010.0)] == [[0, 1, 2], [0, 1, 2], [], [0]]


@given(
    st.integers(1, 72), st.floats(0.1, 100), st.lists(st.floats(0.001, 500), min_size=1, max_size=200), st.floats(0, 50)
)
def test_nobody_comes_more_often_than_agreed_nor_is_left_out(
    members: int, every_s: float, pauses: list[float], first_s: float
) -> None:
    rota, now, turns = RoundRobin(members, every_s, first_s=first_s, began=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        given_now = rota.turns(now)
        assert len(given_now) <= members
        turns += len(given_now)
    assert turns <= members + 1 + now / every_s * members


@given(st.integers(1, 72), st.floats(0.01, 5))
def test_however_often_it_is_asked_everybody_has_a_turn_in_each_period(members: int, interval_s: float) -> None:
    rota, seen, now = RoundRobin(members, 10.0, first_s=0.0, began=0.0), set(), 0.0
    rota.turns(now)
    while now <= 10.0 + interval_s:
        now += interval_s
        seen |= rota.turns(now)
    assert seen == set(range(members))

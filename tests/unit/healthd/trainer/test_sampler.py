from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.sampler import ResumableSampler, permute_index


def ranks(length: int, batch_size: int, world: int, seed: int, state: dict[str, int | bool]) -> list[ResumableSampler]:
    made = [ResumableSampler(length, batch_size=batch_size, rank=rank, world=world, seed=seed) for rank in range(world)]
    for sampler in made if state else ():
        sampler.load_state_dict(json.loads(json.dumps(state)))
    return made


@given(
    length=st.integers(1, 60),
    seed=st.integers(-(2**70), 2**70),
    attempts=st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 9), st.integers(0, 3)), min_size=1
    ),
)
def test_no_sample_comes_twice_or_never_whatever_the_ranks_and_save_points(
    length: int, seed: int, attempts: list[tuple[int, int, int, int]]
) -> None:
    """Each attempt: world size, batch size, steps until the save, steps trained after it and lost by a crash."""
    trained: list[int] = []
    state: dict[str, int | bool] = {}
    for world, batch_size, steps, lost in attempts:
        samplers = ranks(length, batch_size, world, seed, state)
        loaders = [iter(sampler) for sampler in samplers]
        ahead = [list(itertools.islice(loader, steps + lost + 2)) for loader in loaders]  # prefetched, two for nothing
        for step in range(steps):
            trained += [index for batches in ahead for index in batches[step]]
            for sampler in samplers:
                sampler.advance()
        states = [sampler.state_dict() for sampler in samplers]
        assert all(each == states[0] for each in states)
        state = states[0]
        for sampler in samplers:
            sampler.advance(lost)

    assert state["position"] == len(trained)
    for epoch in range(0, len(trained), length):
        seen = trained[epoch : epoch + length]
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(range(length))


@given(length=st.integers(1, 400), key=st.binary(max_size=80))
def test_the_order_is_a_permutation(length: int, key: bytes) -> None:
    assert sorted(permute_index(place, length, key) for place in range(length)) == list(range(length))


def test_the_order_is_the_same_on_every_machine_and_new_in_every_epoch() -> None:
    sampler = ResumableSampler(10, batch_size=10, seed=7)
    first, second = itertools.islice(sampler, 2)

    assert first == [1, 9, 6, 0, 4, 5, 8, 2, 3, 7]
    assert sorted(second) == sorted(first) != second != first
    assert next(iter(ResumableSampler(10, batch_size=10, seed=8))) != first


def test_a_data_set_of_any_size_costs_no_memory() -> None:
    sampler = ResumableSampler(10**13, batch_size=2, rank=1, world=3)
    sampler.advance(10**9)

    assert sampler.epoch == 0
    assert all(0 <= index < 10**13 for index in next(iter(sampler)))


def test_without_shuffling_the_ranks_take_turns() -> None:
    made = [ResumableSampler(5, batch_size=2, rank=rank, world=2, shuffle=False) for rank in range(2)]

    assert [list(itertools.islice(each, 2)) for each in made] == [[[0, 1], [4, 0]], [[2, 3], [1, 2]]]


def test_an_iterator_from_before_the_load_is_refused() -> None:
    sampler = ResumableSampler(5, batch_size=2)
    old = iter(sampler)
    next(old)
    sampler.load_state_dict(sampler.state_dict())

    with pytest.raises(RuntimeError, match="make a new one"):
        next(old)


def test_another_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="saved over 5 samples, this data set has 6"):
        ResumableSampler(6, batch_size=1).load_state_dict(ResumableSampler(5, batch_size=1).state_dict())


@pytest.mark.parametrize("wrong", [{"length": 0}, {"batch_size": 0}, {"rank": 2}, {"rank": -1}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        ResumableSampler(**{"length": 4, "batch_size": 1, "rank": 0, "world": 2, **wrong})

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.microbatches import MicrobatchSampler
from healthd.trainer.sampler import ResumableSampler


def trained(length: int, size: int, count: int, worlds: list[tuple[int, int]]) -> list[list[int]]:
    """The microbatches that generations of so many ranks train in so many steps, in their order."""
    found: list[list[int]] = []
    state: dict[str, int | bool] = {}
    for world, steps in worlds:
        made = [MicrobatchSampler(length, size=size, count=count, rank=rank, world=world) for rank in range(world)]
        for sampler in made if state else ():
            sampler.load_state_dict(state)
        iterators = [iter(sampler) for sampler in made]
        for _ in range(steps):
            step = {}
            for sampler, batches in zip(made, [next(each) for each in iterators], strict=True):
                step |= dict(zip(sampler.numbers, batches, strict=True))
                sampler.advance()
            assert sorted(step) == list(range(count))
            found += [step[number].indices for number in range(count)]
        state = made[0].state_dict()
        assert all(each.state_dict() == state for each in made)
        for sampler in made:  # fetched ahead, and for nothing
            list(itertools.islice(sampler, 2))
    return found


@given(
    length=st.integers(1, 60),
    size=st.integers(1, 4),
    worlds=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=6),
)
def test_shrinking_and_growing_neither_repeat_nor_skip_nor_reorder(
    length: int, size: int, worlds: list[tuple[int, int]]
) -> None:
    steps = sum(each for _, each in worlds)
    whole = trained(length, size, 6, worlds)
    assert whole == trained(length, size, 6, [(1, steps)])
    flat = [index for batch in whole for index in batch]
    for epoch in range(0, len(flat), length):
        assert len(set(flat[epoch : epoch + length])) == len(flat[epoch : epoch + length])


def test_the_position_is_that_of_a_plain_sampler() -> None:
    sampler, plain = MicrobatchSampler(20, size=2, count=3), ResumableSampler(20, batch_size=6)
    sampler.advance(4)
    plain.load_state_dict(sampler.state_dict())
    assert plain.epoch == sampler.epoch == 1
    assert [index for batch in next(iter(sampler)) for index in batch.indices] == next(iter(plain))


def test_every_rank_needs_a_microbatch() -> None:
    with pytest.raises(ValueError, match="each rank needs a microbatch"):
        MicrobatchSampler(20, size=2, count=3, rank=0, world=4)

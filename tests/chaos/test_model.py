"""What the ranks train: the same bits on any number of ranks, whoever hands on the state, and as the checker computes them."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.chaos.checker.training_continuity import chain
from tests.chaos.checker.training_losses import undisturbed_losses
from tests.chaos.world.model import Model

STEPS = 60


def train_step(ranks: list[Model]) -> float:
    """As a collective adds up: rank by rank."""
    parts = [model.compute_part(rank, len(ranks)) for rank, model in enumerate(ranks)]
    summed = parts[0]
    for part in parts[1:]:
        summed = [a + b for a, b in zip(summed, part, strict=True)]
    losses = {model.learn(summed).hex() for model in ranks}
    assert len(losses) == 1
    return float.fromhex(losses.pop())


@pytest.mark.parametrize("world", [1, 2, 3, 5, 8])
def test_every_number_of_ranks_has_the_losses_that_the_checker_computes(world: int) -> None:
    ranks = [Model() for _ in range(world)]
    expected = list(itertools.islice(undisturbed_losses(), STEPS))
    assert [train_step(ranks) for _ in range(STEPS)] == expected
    assert len(set(expected)) == STEPS, "a step has a loss of its own"


def test_a_state_that_is_handed_on_goes_on_as_if_nothing_had_happened() -> None:
    first, others = Model(), [Model(), Model()]
    losses = [train_step([first]) for _ in range(10)]
    for other in others:
        other.take_numbers(first.to_numbers())
    losses += [train_step(others) for _ in range(10)]
    restarted = Model()
    restarted.take_checkpoint(json.loads(json.dumps(others[0].to_checkpoint())))
    losses += [train_step([restarted]) for _ in range(10)]
    assert losses == list(itertools.islice(undisturbed_losses(), 30))
    assert restarted.chain == chain(29)
    nothing = Model()
    nothing.take_numbers(Model().to_numbers())
    assert (nothing.step, nothing.chain) == (0, "")

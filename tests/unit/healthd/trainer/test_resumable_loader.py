"""Batches that follow from their place alone: whatever the workers, the iterators and the random numbers drawn meanwhile."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from healthd.trainer.adapters.pytorch_data import make_resumable_loader
from healthd.trainer.sampler import ResumableSampler

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")]
LENGTH, BATCH = 11, 3


class Augmented(Dataset[Any]):
    """Each sample with a number of every generator."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, torch.rand(()).item(), random.random(), np.random.random()])  # noqa: NPY002, S311 - users do so


def noisy(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) + torch.rand(())


def sampler() -> ResumableSampler:
    return ResumableSampler(LENGTH, batch_size=BATCH, seed=2)


def batches(steps: int, *, position: int = 0, draws: int = 0, **options: Any) -> list[torch.Tensor]:
    torch.manual_seed(draws)
    random.seed(draws)
    np.random.seed(draws)  # noqa: NPY002 - users do so
    chosen = sampler()
    chosen.position = position
    loader = make_resumable_loader(Augmented(), chosen, collate_fn=noisy, **options)
    return list(itertools.islice(loader, steps))


def test_batches_are_the_same_for_any_number_of_workers_and_any_state_of_the_generators() -> None:
    expected = batches(9)
    assert [batch[:, 0].sub(batch[0, 0]).tolist() for batch in expected] != [[0.0] * BATCH] * 9
    assert not torch.equal(expected[0] - expected[0][:1], expected[1] - expected[1][:1])
    for options in ({}, {"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 4}):
        found = batches(9, draws=5, **options)
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_made_later_goes_on_with_the_same_batches(workers: int) -> None:
    expected = batches(9)
    for step in range(9):
        found = batches(2, position=step * BATCH, num_workers=workers)
        assert all(map(torch.equal, found, expected[step:]))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_one_loader_iterated_over_anew_goes_on_at_the_position(options: dict[str, Any]) -> None:
    expected, chosen = batches(9), sampler()
    loader = make_resumable_loader(Augmented(), chosen, collate_fn=noisy, **options)
    found = []
    for epoch in range(3):
        for batch in itertools.islice(loader, 3):
            found.append(batch)
            chosen.advance()
        torch.rand(epoch)
    assert all(map(torch.equal, found, expected))


def test_a_loader_leaves_the_generators_as_they_were() -> None:
    torch.manual_seed(4)
    random.seed(4)
    np.random.seed(4)  # noqa: NPY002 - users do so
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 - same
    seed = torch.initial_seed()
    for workers in (0, 2):
        next(iter(make_resumable_loader(Augmented(), sampler(), num_workers=workers)))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.initial_seed() == seed
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002 - same


def test_a_data_set_that_gives_whole_batches_is_asked_for_them() -> None:
    class Whole(Augmented):
        def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            return [torch.tensor(indices)]

    [batch] = itertools.islice(make_resumable_loader(Whole(), sampler()), 1)
    assert batch.tolist() == [next(iter(sampler()))]


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_without_a_generator_of_its_own_is_refused(workers: int) -> None:
    data = TensorDataset(torch.arange(LENGTH))
    for persistent in {False, workers > 0}:
        loader = DataLoader(data, batch_sampler=sampler(), num_workers=workers, persistent_workers=persistent)
        with pytest.raises(RuntimeError, match=r"would not be bit-exact: make it with .*make_resumable_loader"):
            next(iter(loader))
    own = DataLoader(data, batch_sampler=sampler(), num_workers=workers, generator=torch.Generator())
    assert next(iter(own))[0].tolist() == next(iter(sampler()))


def test_what_the_sampler_decides_is_refused() -> None:
    with pytest.raises(TypeError, match=r"does not accept generator, shuffle: the sampler decides"):
        make_resumable_loader(Augmented(), sampler(), shuffle=True, generator=torch.Generator())

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            yield 1

    with pytest.raises(TypeError, match="needs a data set with __getitem__"):
        make_resumable_loader(Stream(), sampler())

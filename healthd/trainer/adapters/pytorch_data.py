"""A PyTorch data loader whose batches do not depend on when it was made, so that a resumed run sees the same ones, bit for bit.

    loader = make_resumable_loader(dataset, sampler, num_workers=4)
    for step, batch in zip(range(checkpoints.load_latest(), steps), loader):
        ...
        sampler.advance()

Torch's own loader leaves two marks on a run. It draws a seed from the default generator for every iterator, and its workers
go on drawing from that seed, batch after batch; a resumed run makes its iterators, and starts its workers, at other steps.
Here the loader has a generator of its own, and each batch is fetched with random numbers that follow from its place in the
sampler's stream alone. So they are also the same for any number of workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from healthd.trainer.sampler import PlacedBatch, ResumableSampler

_DECIDED = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator", "in_order")


def make_resumable_loader(
    dataset: Dataset[Any],
    sampler: ResumableSampler,
    *,
    collate_fn: Callable[[list[Any]], Any] = default_collate,
    **options: Any,
) -> DataLoader[Any]:
    """A loader over `dataset` whose batches are the sampler's, without end.

    Within `dataset` and `collate_fn` Python's, NumPy's global and PyTorch's CPU generators are seeded for each batch, and
    put back afterwards where there are no workers. Generators of the data set's own are its own matter.

    Args:
        dataset: with `__getitem__`, or `__getitems__` for a whole batch.
        sampler: call its `advance()` after each step; it belongs into the `TrainingState`.
        collate_fn: makes a batch of a list of samples.
        options: every other argument of `DataLoader`: `num_workers`, `persistent_workers`, `pin_memory`...

    Raises:
        TypeError: an option that the sampler decides, or a data set that is only iterable.
    """
    if decided := sorted(options.keys() & set(_DECIDED)):
        raise TypeError(
            f"make_resumable_loader() does not accept {', '.join(decided)}: the sampler decides the batches and their order"
        )
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            "make_resumable_loader() needs a data set with __getitem__: an IterableDataset has no places to resume at"
        )
    return DataLoader(
        _SeededBatches(dataset, collate_fn),
        batch_size=None,  # an item of the data set below is a whole batch
        sampler=_PlaceSampler(sampler),
        collate_fn=_identity_collate,
        generator=torch.Generator(),
        **options,
    )


class _PlaceSampler:
    """What the loader takes for a sampler."""

    def __init__(self, sampler: ResumableSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[PlacedBatch]:
        return self._sampler.place_batches()


class _SeededBatches(Dataset[Any]):  # type: ignore[misc]  # torch is untyped here
    """Batches as items; runs in the workers."""

    def __init__(self, dataset: Dataset[Any], collate_fn: Callable[[list[Any]], Any]) -> None:
        self._dataset, self._collate = dataset, collate_fn

    def __getitem__(self, batch: PlacedBatch) -> Any:
        with _seed_generators(batch.place):
            if hasattr(self._dataset, "__getitems__"):
                samples = self._dataset.__getitems__(batch.indices)
            else:
                samples = [self._dataset[index] for index in batch.indices]
            return self._collate(samples)


@contextlib.contextmanager
def _seed_generators(place: str) -> Iterator[None]:
    """Seed the random generators of this process by `place`, and put them back afterwards. GPUs' generators stay as they are."""
    seed = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "little")
    numpy = sys.modules.get("numpy")
    before = random.getstate(), torch.default_generator.get_state(), numpy.random.get_state() if numpy else None
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy:
        numpy.random.seed([seed % 2**32, seed >> 32])
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.default_generator.set_state(before[1])
        if numpy:
            numpy.random.set_state(before[2])


def _identity_collate(batch: Any) -> Any:
    return batch

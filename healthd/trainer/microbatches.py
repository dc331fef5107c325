"""A global batch that stays the same when the number of ranks changes: a constant number of microbatches, dealt over the ranks.

    sampler = MicrobatchSampler(len(data), size=8, count=12, rank=job.rank, world=job.world, seed=1)
    for batches in sampler:                # this rank's microbatches of one step
        for batch in batches:
            train(batch.indices)
        sampler.advance()                  # trained

Microbatch number n of a step is rank `n % world`'s, and holds the same samples whatever the number of ranks. The position is
that of `ResumableSampler`, so a step after another number of ranks neither repeats a sample nor skips one. No framework in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from healthd.trainer.sampler import PlacedBatch, ResumableSampler


class MicrobatchSampler:
    """Microbatches of indices for one rank, without end."""

    def __init__(
        self, length: int, *, size: int, count: int, rank: int = 0, world: int = 1, seed: int = 0, shuffle: bool = True
    ) -> None:
        """From the beginning.

        Args:
            length: samples in the data set, at least 1.
            size: samples per microbatch, at least 1.
            count: microbatches per step, of all ranks together; as many as there may ever be ranks, or more.
            rank: of this process, from 0.
            world: number of ranks.
            seed: of the order; the same on every rank.
            shuffle: False: the order of the data set, in every epoch.

        Raises:
            ValueError: a number out of its range.
        """
        if count < world or not 0 <= rank < world:
            raise ValueError(f"count={count} rank={rank} world={world}: each rank needs a microbatch")
        self._sampler = ResumableSampler(length, batch_size=size, world=count, seed=seed, shuffle=shuffle)
        self.size, self.count = size, count
        self.numbers = range(rank, count, world)  # of this rank's microbatches

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return self._sampler.epoch

    def advance(self, steps: int = 1) -> None:
        """Call after each step that was trained on."""
        self._sampler.advance(steps)

    def state_dict(self) -> dict[str, int | bool]:
        """The same on every rank, for any number of ranks; a `ResumableSampler` of the same data set can load it, too."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Continue from a saved position; earlier iterators must no longer be used.

        Raises:
            ValueError: it was saved over a data set of another length.
        """
        self._sampler.load_state_dict(state)

    def __iter__(self) -> Iterator[list[PlacedBatch]]:
        """This rank's microbatches of each step, from the position on."""
        start = self._sampler.position
        while True:
            yield [self._batch(start + number * self.size) for number in self.numbers]
            start += self.count * self.size

    def _batch(self, start: int) -> PlacedBatch:
        indices = [self._sampler.sample(at) for at in range(start, start + self.size)]
        return PlacedBatch(f"{self._sampler.seed}/{start}", indices)

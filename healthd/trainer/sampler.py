"""Which samples a rank trains on: a position that survives a restart, also with another number of ranks.

All epochs form one stream: a permutation of the data set, then another, and so on. A step takes the next `batch_size` ×
`world` samples of it, so the position is one number that all ranks share: no rank count or save point repeats or skips
a sample within an epoch. Steps are always full; an epoch may end within one.

    sampler = ResumableSampler(len(data), batch_size=8, rank=rank, world=world, seed=1)
    for indices in sampler:                # or make_resumable_loader(data, sampler), of adapters.pytorch_data
        train(indices)
        sampler.advance()                  # trained: what a loader fetched ahead does not count

Uses no framework and no table: the permutation is computed element by element.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_ROUNDS = 4
_LOADER = "torch.utils.data.dataloader"
_BITS_MIN = 6  # with fewer, these rounds make some orders likelier than others


class PlacedBatch(NamedTuple):
    """One rank's batch of one step. `place` identifies it among all batches of a run, regardless of prefetching."""

    place: str
    indices: list[int]


class ResumableSampler:
    """Endless batches of indices for one rank; `position` counts the samples all ranks have trained on."""

    def __init__(
        self, length: int, *, batch_size: int, rank: int = 0, world: int = 1, seed: int = 0, shuffle: bool = True
    ) -> None:
        """Start at the beginning.

        Args:
            length: samples in the data set, at least 1.
            batch_size: samples per rank and step, at least 1.
            rank: of this process, from 0.
            world: number of ranks.
            seed: of the order; the same on every rank, and part of the saved state.
            shuffle: False: the order of the data set, in every epoch.

        Raises:
            ValueError: a number out of its range.
        """
        if length < 1 or batch_size < 1 or not 0 <= rank < world:
            raise ValueError(f"length={length} batch_size={batch_size} rank={rank} world={world}: out of range")
        self.length, self.batch_size = length, batch_size
        self.rank, self.world = rank, world
        self.seed, self.shuffle = seed, shuffle
        self.position = 0
        self._loads = 0

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self.position // self.length

    def advance(self, steps: int = 1) -> None:
        """Advance the position. Call after each trained step."""
        self.position += steps * self.batch_size * self.world

    def state_dict(self) -> dict[str, int | bool]:
        """Return the state; the same on every rank, for any number of ranks."""
        return {"position": self.position, "length": self.length, "seed": self.seed, "shuffle": self.shuffle}

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Resume from a saved position; its seed and order replace this sampler's.

        Raises:
            ValueError: it was saved over a data set of another length.
        """
        if state["length"] != self.length:
            raise ValueError(f"the position was saved over {state['length']} samples, this data set has {self.length}")
        self.position, self.seed = int(state["position"]), int(state["seed"])
        self.shuffle = bool(state["shuffle"])
        self._loads += 1

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's batches from the position on, `batch_size` indices each.

        Raises:
            RuntimeError: from the iterator: it predates a `load_state_dict`, or it belongs to a torch `DataLoader`
            without a generator, whose seed a resumed run would not repeat.
        """
        return self._batches(refused=_draws_from_default_generator())

    def _batches(self, *, refused: bool) -> Iterator[list[int]]:
        if refused:  # not earlier: a half-constructed loader logs errors when it is destroyed
            raise RuntimeError(
                "a DataLoader without generator= draws from torch's default generator each time it is iterated over, so a resumed "
                "run would not be bit-exact: make it with healthd.trainer.adapters.pytorch_data.make_resumable_loader(dataset, sampler)"
            )
        for batch in self.place_batches():
            yield batch.indices

    def place_batches(self) -> Iterator[PlacedBatch]:
        """Yield the same batches with their places.

        Raises:
            RuntimeError: from an iterator that predates a `load_state_dict`.
        """
        loads, start = self._loads, self.position + self.rank * self.batch_size
        while True:
            if loads != self._loads:
                raise RuntimeError("this iterator is older than the state that was loaded: make a new one")
            indices = [self.sample(at) for at in range(start, start + self.batch_size)]
            yield PlacedBatch(f"{self.seed}/{start}", indices)
            start += self.batch_size * self.world

    def sample(self, at: int) -> int:
        """Return the index of the sample at one place of the stream."""
        epoch, place = divmod(at, self.length)
        return permute_index(place, self.length, f"{self.seed}/{epoch}".encode()) if self.shuffle else place


def _draws_from_default_generator() -> bool:
    """Return whether the calling torch loader draws a seed from the default generator for each iterator.

    A resumed run makes its iterators at other steps, so all later random numbers would differ. A loader passes a
    sampler no information about itself, so this inspects its frame. A torch version with other names is not recognised.
    """
    caller = sys._getframe(2)  # noqa: SLF001 - `inspect` gives the same and takes long to import
    if caller.f_globals.get("__name__") != _LOADER:
        return False
    return getattr(caller.f_locals.get("loader"), "generator", caller) is None


def permute_index(place: int, length: int, key: bytes) -> int:
    """Return where a keyed permutation of range(length) sends `place`.

    A Feistel network permutes the next power of two; results outside the range are permuted again until they fall
    inside, which keeps it one-to-one. The hash makes the order the same on every machine and version.
    """
    bits = max(_BITS_MIN, (length - 1).bit_length())
    while True:
        left_bits, right_bits = bits // 2, bits - bits // 2
        left, right = place >> right_bits, place & ((1 << right_bits) - 1)
        for number in range(_ROUNDS):
            left, right = right, left ^ (_hash_value(right, number, key) & ((1 << left_bits) - 1))
            left_bits, right_bits = right_bits, left_bits
        place = (left << right_bits) | right
        if place < length:
            return place


def _hash_value(value: int, number: int, key: bytes) -> int:
    digest = hashlib.blake2b(value.to_bytes(8, "little"), digest_size=8, key=key[:64], salt=bytes([number]))
    return int.from_bytes(digest.digest(), "little")

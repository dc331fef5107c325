"""The collectives a training step is made of, each with data that shows whose part was wrong.

Reductions give every rank bits of its own in each word: the sum is then all their bits side by side, there is one right answer whatever the
order, and a wrong bit says whose it is. The ranks change places each turn, so that what was wrong with a rank's part moves with it, and what
is wrong with one bit on the way stays. What is only moved carries words hashed from who sent it to whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from preflight.checks.hashed_payloads import WordMismatch, derive_seed, fill_words, find_mismatched_words, poison_words
from preflight.kernels.memory_patterns import ALL_BITS, splitmix

FLOATS = {
    "bf16": (torch.bfloat16, 3),
    "fp32": (torch.float32, 17),
}  # bits of the values: their sum over 64 ranks is exact
_FLOAT_ELEMENTS = 1 << 16


class PartFault(NamedTuple):
    """Wrong words in what one rank got, and whose part of it they are; several if they cannot be told apart.

    `turn` is how far the ranks had changed places in a reduction; None where a hash or nothing says whose the words are.
    """

    senders: tuple[int, ...]
    sentence: str
    turn: int | None = None


class RankGroup(NamedTuple):
    """Which rank this is, of how many, and where its tensors are."""

    rank: int
    ranks: int
    device: str


def compute_own_bits(rank: int, ranks: int, turn: int = 0) -> int:
    """The bits of a word that are this rank's in a reduction, in this turn. From 65 ranks on, some have none in each turn."""
    width, place = max(1, 64 // ranks), (rank + turn) % ranks
    return (((1 << width) - 1) << (place * width)) & ALL_BITS


def find_bit_senders(bits: int, ranks: int, turn: int = 0) -> tuple[int, ...]:
    """Whose bits these are."""
    return tuple(rank for rank in range(ranks) if bits & compute_own_bits(rank, ranks, turn))


class Operation:
    """One collective over `words` words: `send` and `receive` are its buffers, `perform` runs it, `faults` judges what came."""

    name = ""
    in_place = False
    reduces = False
    times_over = 1  # each part crosses to all others so often

    def __init__(self, group: RankGroup, words: int, seed: int) -> None:
        self.group, self.seed = group, seed
        self.words = max(1, words // group.ranks) * group.ranks
        self.chunk = self.words // group.ranks
        self.turn = -1
        self.send, self.receive = self._buffers()

    def give(self, turn: int) -> bool:
        """Write what is sent, as it is in this turn; False if it stands there already."""
        turn %= self.group.ranks if self.reduces else 1
        if turn == self.turn:
            return False
        self.turn = turn
        self._give()
        return True

    def ready(self) -> None:
        """Make everything as before the first time."""
        if self.in_place:
            self.receive.copy_(self.send)
        else:
            poison_words(self.receive)

    def perform(self) -> None:
        """Run it once."""
        self._perform()

    def faults(self) -> Iterator[PartFault]:
        """What is wrong with what came."""
        yield from self._faults()

    def share(self) -> float:
        """Bytes on the busiest link for each byte of the buffer, as nccl-tests count them."""
        return self.times_over * (self.group.ranks - 1) / self.group.ranks

    def _buffers(self) -> tuple[Any, Any]:
        return self._empty(self.words), self._empty(self.words)

    def _give(self) -> None:
        raise NotImplementedError

    def _perform(self) -> None:
        raise NotImplementedError

    def _faults(self) -> Iterator[PartFault]:
        raise NotImplementedError

    def _empty(self, words: int) -> Any:
        return torch.empty(words, dtype=torch.int64, device=self.group.device)

    def _parts(self, words: Any) -> Iterator[tuple[int, Any]]:
        yield from enumerate(words.split(self.chunk))

    @property
    def _all_bits(self) -> int:
        return sum(compute_own_bits(rank, self.group.ranks) for rank in range(self.group.ranks))

    @property
    def _own_bits(self) -> int:
        return compute_own_bits(self.group.rank, self.group.ranks, self.turn)

    def _whose(self, wrong: WordMismatch | None) -> Iterator[PartFault]:
        if wrong:
            senders = find_bit_senders(wrong.bits, self.group.ranks, self.turn)
            yield PartFault(senders, f"{self.name}: {wrong.sentence()}", self.turn)

    def _moved(self, sender: int, wrong: WordMismatch | None) -> Iterator[PartFault]:
        if wrong:
            yield PartFault((sender,), f"{self.name}: from rank {sender} {wrong.sentence()}")


class AllReduce(Operation):
    """Everybody gets the sum."""

    name = "all_reduce"
    in_place = True
    reduces = True
    times_over = 2

    def _give(self) -> None:
        fill_words(self.send, self.seed, self._own_bits)

    def _perform(self) -> None:
        dist.all_reduce(self.receive)

    def _faults(self) -> Iterator[PartFault]:
        yield from self._whose(find_mismatched_words(self.receive, self.seed, self._all_bits))


class ReduceScatter(Operation):
    """Everybody gets a part of the sum."""

    name = "reduce_scatter"
    reduces = True

    def _buffers(self) -> tuple[Any, Any]:
        return self._empty(self.words), self._empty(self.chunk)

    def _give(self) -> None:
        for part, words in self._parts(self.send):
            fill_words(words, derive_seed(self.seed, part), self._own_bits)

    def _perform(self) -> None:
        _find_single_tensor_form("reduce_scatter")(self.receive, self.send)

    def _faults(self) -> Iterator[PartFault]:
        yield from self._whose(
            find_mismatched_words(self.receive, derive_seed(self.seed, self.group.rank), self._all_bits)
        )


class AllGather(Operation):
    """Everybody gets what everybody has."""

    name = "all_gather"

    def _buffers(self) -> tuple[Any, Any]:
        return self._empty(self.chunk), self._empty(self.words)

    def _give(self) -> None:
        fill_words(self.send, derive_seed(self.seed, self.group.rank))

    def _perform(self) -> None:
        _find_single_tensor_form("all_gather")(self.receive, self.send)

    def _faults(self) -> Iterator[PartFault]:
        for sender, words in self._parts(self.receive):
            yield from self._moved(sender, find_mismatched_words(words, derive_seed(self.seed, sender)))


class AllToAll(Operation):
    """Everybody sends each a part of its own."""

    name = "all_to_all"

    def _give(self) -> None:
        for receiver, words in self._parts(self.send):
            fill_words(words, derive_seed(self.seed, self.group.rank, receiver))

    def _perform(self) -> None:
        dist.all_to_all_single(self.receive, self.send)

    def _faults(self) -> Iterator[PartFault]:
        for sender, words in self._parts(self.receive):
            yield from self._moved(
                sender, find_mismatched_words(words, derive_seed(self.seed, sender, self.group.rank))
            )


OPERATIONS: tuple[type[Operation], ...] = (AllReduce, AllGather, ReduceScatter, AllToAll)


def find_float_faults(group: RankGroup, seed: int, spoil: Callable[[Any], None]) -> Iterator[PartFault]:
    """Sums of small whole numbers as floats: each is exact in any order, so there is one right answer. They don't say who."""
    for name, (kind, bits) in FLOATS.items():
        parts = [_small_numbers(group, derive_seed(seed, rank), bits) for rank in range(group.ranks)]
        total = parts[group.rank].to(kind)
        spoil(total)
        dist.all_reduce(total)
        wanted = torch.stack(parts).sum(dim=0)
        places = (total.to(torch.float64) != wanted).nonzero().flatten()
        if places.numel():
            first = int(places[0])
            numbers = f"first element {first}: {int(wanted[first])} expected, {float(total[first]):g} found"
            yield PartFault((), f"all_reduce of {name}: {places.numel()} wrong sums, {numbers}")


def _small_numbers(group: RankGroup, seed: int, bits: int) -> Any:
    words = torch.empty(_FLOAT_ELEMENTS, dtype=torch.int64, device=group.device)
    fill_words(words, splitmix(seed), (1 << bits) - 1)
    return (words - (1 << (bits - 1))).to(torch.float64)


def _find_single_tensor_form(name: str) -> Callable[[Any, Any], object]:
    """The form that takes one tensor each; older releases of torch call it otherwise."""
    older = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}[name]
    found: Callable[[Any, Any], object] = getattr(dist, f"{name}_single", None) or getattr(dist, older)
    return found

"""The collectives of a training step, with data that identifies the rank whose part is wrong.

In reductions each rank owns some bits of every word: the sum contains all bits side by side, is exact in any order, and a
wrong bit identifies its rank. Ranks rotate each turn, so that an error in a rank's part moves with the rank and an error of
one bit in transit stays. Moved data is hashed from sender and receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from preflight.checks.hashed_payloads import WordMismatch, derive_seed, fill_sentinel, fill_words, find_mismatched_words
from preflight.kernels.memory_patterns import ALL_BITS, splitmix

FLOATS = {
    "bf16": (torch.bfloat16, 3),
    "fp32": (torch.float32, 17),
}  # bits of the values: their sum over 64 ranks is exact
_FLOAT_ELEMENTS = 1 << 16


class PartFault(NamedTuple):
    """Wrong words that one rank received, and whose part they are; several ranks if indistinguishable.

    `turn` is the rotation in a reduction; None if a hash, or nothing, identifies the sender.
    """

    senders: tuple[int, ...]
    sentence: str
    turn: int | None = None


class RankGroup(NamedTuple):
    """This rank's number, the world size, the device of its tensors, and the process group of `AllReduce`, if not the default."""

    rank: int
    ranks: int
    device: str
    process_group: Any = None


def compute_own_bits(rank: int, ranks: int, turn: int = 0) -> int:
    """The bits of a word that this rank owns in a reduction, in this turn. Above 64 ranks, some own none in a turn."""
    width, place = max(1, 64 // ranks), (rank + turn) % ranks
    return (((1 << width) - 1) << (place * width)) & ALL_BITS


def find_bit_senders(bits: int, ranks: int, turn: int = 0) -> tuple[int, ...]:
    """The ranks that own these bits."""
    return tuple(rank for rank in range(ranks) if bits & compute_own_bits(rank, ranks, turn))


class Operation:
    """One collective over `words` words: `send` and `receive` are its buffers, `perform` runs it, `faults` checks the result."""

    name = ""
    in_place = False
    reduces = False
    times_over = 1  # how often each part crosses to all others

    def __init__(self, group: RankGroup, words: int, seed: int) -> None:
        self.group, self.seed = group, seed
        self.words = max(1, words // group.ranks) * group.ranks
        self.chunk = self.words // group.ranks
        self.turn = -1
        self.send, self.receive = self._buffers()

    def give(self, turn: int) -> bool:
        """Write the input of this turn; False if it is unchanged."""
        turn %= self.group.ranks if self.reduces else 1
        if turn == self.turn:
            return False
        self.turn = turn
        self._give()
        return True

    def ready(self) -> None:
        """Reset the buffers."""
        if self.in_place:
            self.receive.copy_(self.send)
        else:
            fill_sentinel(self.receive)

    def perform(self) -> None:
        """Run it once."""
        self._perform()

    def faults(self) -> Iterator[PartFault]:
        """The errors in the received data."""
        yield from self._faults()

    def share(self) -> float:
        """Bytes on the busiest link per byte of the buffer, as counted by nccl-tests."""
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
    """Every rank gets the sum."""

    name = "all_reduce"
    in_place = True
    reduces = True
    times_over = 2

    def _give(self) -> None:
        fill_words(self.send, self.seed, self._own_bits)

    def _perform(self) -> None:
        dist.all_reduce(self.receive, group=self.group.process_group)

    def _faults(self) -> Iterator[PartFault]:
        yield from self._whose(find_mismatched_words(self.receive, self.seed, self._all_bits))


class ReduceScatter(Operation):
    """Every rank gets a part of the sum."""

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
    """Every rank gets the data of all ranks."""

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
    """Every rank sends a different part to each rank."""

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
    """Check sums of small integers as floats, which are exact in any order. Errors do not identify a rank."""
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
    """The single-tensor form; older releases of torch use another name."""
    older = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}[name]
    found: Callable[[Any, Any], object] = getattr(dist, f"{name}_single", None) or getattr(dist, older)
    return found

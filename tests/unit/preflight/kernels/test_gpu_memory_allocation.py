from __future__ import annotations

from typing import Any

import pytest
import torch

taking = pytest.importorskip("preflight.kernels.gpu_memory_allocation")
GIB = 1 << 30


class Block:
    def __init__(self, card: Card, size: int) -> None:
        self.card, self.size = card, size
        card.used += size

    def __del__(self) -> None:
        self.card.used -= self.size


class Card:
    """Memory of a size, of which one allocation gets no more than `largest`."""

    def __init__(self, total: int, largest: int, thief: int = 0) -> None:
        self.total, self.largest, self.used, self.thief = total, largest, 0, thief

    def free(self) -> int:
        return self.total - self.used

    def allocate(self, words: int) -> Any:
        if words * 8 > min(self.largest, self.free()):
            raise torch.OutOfMemoryError("refused")
        self.used += self.thief
        self.thief = 0
        return Block(self, words * 8)


def test_all_but_a_hundredth_is_taken_in_one_piece() -> None:
    card = Card(139 * GIB, 139 * GIB)
    taken = taking.allocate_pieces(card.free, card.allocate)
    assert len(taken.pieces) == 1
    assert taken.coverage > 0.98
    assert card.free() >= taking.compute_reserve_bytes(139 * GIB)
    assert str(taken).endswith("in 1 piece")


def test_where_large_pieces_are_refused_halves_are_taken() -> None:
    card = Card(139 * GIB, 20 * GIB)
    taken = taking.allocate_pieces(card.free, card.allocate)
    assert taken.coverage > 0.98
    assert 7 <= len(taken.pieces) <= 16
    ends = [piece.base + piece.memory.size // 8 for piece in taken.pieces]
    assert [piece.base for piece in taken.pieces] == [0, *ends[:-1]]


def test_the_reserve_is_given_back_to_whoever_took_it_meanwhile() -> None:
    card = Card(10 * GIB, 10 * GIB, thief=2 * GIB // 10)
    taken = taking.allocate_pieces(card.free, card.allocate)
    assert card.free() >= taking.compute_reserve_bytes(10 * GIB) - (4 << 20)
    assert 0 < taken.coverage < 0.98


@pytest.mark.parametrize("card", [Card(100 << 20, 100 << 20), Card(GIB, 0)])
def test_where_nothing_can_be_taken_it_says_so(card: Card) -> None:
    taken = taking.allocate_pieces(card.free, card.allocate)
    assert (taken.pieces, taken.coverage) == ([], 0.0)

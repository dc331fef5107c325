from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.kernels import memory_patterns as p
from preflight.kernels import memory_sweeps
from preflight.kernels.memory_errors import LISTED, Errors, Piece, signed
from preflight.kernels.torch_memory import TorchWay, _iterate_blocks, fill_pattern

pytestmark = pytest.mark.torch
EVERY = sorted(set(p.FULL + p.GATE))
ADDRESSES = st.integers(0, 1 << 45)


def triton_way() -> Any:
    pytest.importorskip("triton")
    from preflight.kernels.triton_memory import TritonWay  # noqa: PLC0415 - only where triton is

    return TritonWay()


def piece(words: int, base: int = 0) -> Piece:
    return Piece(torch.full((words,), 0x5EED, dtype=torch.int64), base)


def unsigned(memory: Any) -> list[int]:
    return [word & p.ALL_BITS for word in memory.tolist()]


@given(st.sampled_from(EVERY), ADDRESSES, st.integers(1, 70), st.integers(0, p.ALL_BITS), st.integers(0, p.ALL_BITS))
def test_torch_writes_what_the_judge_expects(pattern: p.Pattern, first: int, words: int, seed: int, keep: int) -> None:
    if pattern.kind in (p.HASH, p.CONSTANT):
        pattern = pattern._replace(seed=seed)
    pattern = pattern._replace(keep=keep)
    out = torch.empty(words, dtype=torch.int64)
    fill_pattern(out, pattern, first)
    assert unsigned(out) == [p.compute_expected_word(pattern, first + i) for i in range(words)]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind of pattern 99"):
        fill_pattern(torch.empty(1, dtype=torch.int64), p.Pattern("?", 99), 0)


@given(st.sampled_from(EVERY), ADDRESSES, st.integers(1, 300), st.integers(1, 64), st.data())
def test_memory_and_answers_do_not_depend_on_the_size_of_blocks(
    pattern: p.Pattern, base: int, words: int, block: int, data: st.DataObject
) -> None:
    places = data.draw(st.dictionaries(st.integers(0, words - 1), st.integers(1, p.ALL_BITS), max_size=5))
    answers = []
    for size in (block, 0):
        made, way = piece(words, base), TorchWay(size)
        way.write(made, pattern)
        assert unsigned(made.memory) == [p.compute_expected_word(pattern, base + i) for i in range(words)]
        for place, flipped in places.items():
            made.memory[place] ^= signed(flipped)
        answers.append(memory_sweeps.verify_pieces(way, [made], pattern))
    assert answers[0] == answers[1]
    assert [word.address for word in answers[0].listed] == sorted(base + place for place in places)
    assert answers[0].bits == tuple(sum(flip >> bit & 1 for flip in places.values()) for bit in range(64))


def spoilt_sweep(way: Any) -> tuple[list[Errors], list[list[int]]]:
    pieces = [piece(2500), piece(0, 2500), piece(70, 2500)]

    def spoil(pattern: p.Pattern) -> None:
        pieces[0].memory[7] |= 4
        pieces[2].memory[0:70:3] &= ~(1 << 50)
        if pattern.kind == p.CHECKER:
            pieces[0].memory[2000] ^= -1 << 63

    found = memory_sweeps.sweep_patterns(way, pieces, p.FULL, spoil)
    return found, [each.memory.tolist() for each in pieces]


def test_torch_and_triton_find_the_same_and_leave_the_same() -> None:
    """Compared where there is a Triton; that torch finds it is seen everywhere."""
    found, left = spoilt_sweep(TorchWay(512))
    assert len(found) > len(p.FULL) // 2
    assert (found, left) == spoilt_sweep(TorchWay())
    assert (found, left) == spoilt_sweep(triton_way())


def test_nothing_outside_of_a_piece_is_written() -> None:
    whole = torch.full((200,), 7, dtype=torch.int64)
    for pattern in EVERY:
        TorchWay(64).write(Piece(whole[3:130]), pattern)
    assert (whole[:3].tolist(), whole[130:].unique().tolist()) == ([7, 7, 7], [7])


def test_good_memory_passes_and_each_pattern_stands_before_it_is_verified() -> None:
    pieces = [piece(1000), piece(77, 1000)]
    stood: list[str] = []

    def look(pattern: p.Pattern) -> None:
        stood.append(pattern.name)
        assert unsigned(pieces[1].memory) == [p.compute_expected_word(pattern, 1000 + i) for i in range(77)]

    assert memory_sweeps.sweep_patterns(TorchWay(64), pieces, p.FULL, look) == []
    assert stood == [pattern.name for pattern in p.FULL]


def test_a_block_with_errors_is_left_as_it_was_and_the_next_pattern_is_whole_again() -> None:
    made, way = piece(300), TorchWay(100)
    way.write(made, p.GATE[0])
    made.memory[150] ^= 1
    going = way.begin(p.GATE[0], "cpu", p.GATE[1])
    going.launch(made)
    assert going.errors([made]).wrong == 1
    assert unsigned(made.memory)[151:200] == [p.compute_expected_word(p.GATE[0], i) for i in range(151, 200)]
    assert unsigned(made.memory)[200:] == [p.compute_expected_word(p.GATE[1], i) for i in range(200, 300)]


def test_more_errors_than_there_is_room_for_are_counted_and_repeats_count_again() -> None:
    made, words = piece(LISTED * 2), LISTED * 2
    TorchWay().write(made, p.FULL[0])
    errors = memory_sweeps.verify_pieces(TorchWay(), [made], p.FULL[1], repeats=3)
    assert (errors.wrong, len(errors.listed), sum(errors.bits)) == (3 * words, LISTED, 3 * words * 64)


def test_a_word_read_many_times_is_listed_once() -> None:
    made = piece(100)
    TorchWay().write(made, p.FULL[0])
    made.memory[7] ^= 1
    errors = memory_sweeps.verify_pieces(TorchWay(), [made], p.FULL[0], repeats=5)
    assert (errors.wrong, errors.bits[0], [word.address for word in errors.listed]) == (5, 5, [7])


@pytest.mark.parametrize(
    ("order", "visited"),
    [
        (p.UP, [1000, 1010, 1020, 1030, 1040]),
        (p.DOWN, [1000, 1040, 1030, 1020, 1010]),
        (p.SCATTERED, [1000, 1030, 1010, 1040, 1020]),
    ],
)
def test_blocks_are_visited_in_the_order_of_the_pattern(order: str, visited: list[int]) -> None:
    blocks = list(_iterate_blocks(piece(45, 1000), order, 10))
    assert [first for first, _ in blocks] == visited
    assert sorted(block.numel() for _, block in blocks) == [5, 10, 10, 10, 10]


def test_a_wrong_read_that_nobody_can_find_again_still_counts() -> None:
    going = TorchWay().begin(p.GATE[0], "cpu")
    wanted = torch.arange(4)
    going._note(wanted.clone(), wanted, 0)
    errors = going.errors([piece(4)])
    assert (errors.wrong, errors.listed) == (1, ())


def test_rounds_draw_other_random_words_and_keep_the_rest() -> None:
    again = p.reseed_patterns(p.FULL, 1)
    assert p.reseed_patterns(p.FULL, 0) == p.FULL
    assert {a.name for a, b in zip(p.FULL, again, strict=True) if a != b} == {
        pattern.name for pattern in p.FULL if pattern.kind == p.HASH
    }

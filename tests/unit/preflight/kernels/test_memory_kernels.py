from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

memory = pytest.importorskip("preflight.kernels.triton_memory")

import triton  # noqa: E402 - only where it is
import triton.language as tl  # noqa: E402 - the same

from preflight.kernels import memory_patterns as p  # noqa: E402 - only where triton is
from preflight.kernels import memory_sweeps  # noqa: E402 - only where triton is
from preflight.kernels.pattern_kernels import compute_block_number  # noqa: E402 - only where triton is

pytestmark = pytest.mark.torch
EVERY = sorted(set(p.FULL + p.GATE))
FAR = [0, (1 << 32) - 700, (1 << 40) + 3]


def numpy_words(pattern: p.Pattern, base: int, words: int) -> Any:
    """The patterns once more, written down independently, in numpy's unsigned words."""
    at = np.uint64(base) + np.arange(words, dtype=np.uint64)
    if pattern.kind == p.ADDRESS:
        raw = at * np.uint64(8)
    elif pattern.kind == p.WALKING:
        raw = np.left_shift(np.uint64(1), (at + np.uint64(pattern.seed)) % np.uint64(64))
    elif pattern.kind == p.CONSTANT:
        raw = np.full(words, pattern.seed, dtype=np.uint64)
    elif pattern.kind == p.HASH:
        raw = at * np.uint64(0xBAE5929A3B1CECD5) + np.uint64(pattern.seed)
        raw = raw ^ (raw >> np.uint64(32))
    elif pattern.kind == p.CHECKER:
        raw = np.where(at % np.uint64(2) == 0, np.uint64(0x5555555555555555), np.uint64(0xAAAAAAAAAAAAAAAA))
    elif pattern.kind == p.MODULO:
        raw = np.where(at % np.uint64(20) == pattern.seed, np.uint64(p.ALL_BITS), np.uint64(0))
    else:
        raw = np.where((at >> np.uint64(pattern.shift)) & np.uint64(1), np.uint64(p.ALL_BITS), np.uint64(0))
    return (raw & np.uint64(pattern.keep)) ^ np.uint64(pattern.flip)


def piece(words: int, base: int = 0) -> Any:
    return memory.Piece(torch.zeros(words, dtype=torch.int64), base)


@pytest.mark.parametrize("pattern", EVERY, ids=lambda pattern: pattern.name)
def test_a_pattern_is_the_model_bit_for_bit_also_beyond_32_bits(pattern: p.Pattern) -> None:
    for base, words, block in zip(FAR, (1, 1337, 2049), (64, 256, 1024), strict=True):
        made = piece(words, base)
        memory.write(made, pattern, block)
        model = numpy_words(pattern, base, words)
        assert np.array_equal(made.memory.numpy().view(np.uint64), model)
        assert [p.compute_expected_word(pattern, base + i) for i in (0, words // 2, words - 1)] == [
            int(model[i]) for i in (0, words // 2, words - 1)
        ]
        assert memory.verify([made], pattern).wrong == 0


@triton.jit
def blocks_kernel(out, first: tl.int64, step: tl.int64, blocks: tl.int64, SCATTERED: tl.constexpr):  # noqa: ANN201, ANN001, N803 - a kernel
    tl.store(out + tl.program_id(0), compute_block_number(first, step, blocks, SCATTERED))


@pytest.mark.parametrize(
    ("order", "visited"), [(p.UP, [0, 1, 2, 3, 4]), (p.DOWN, [4, 3, 2, 1, 0]), (p.SCATTERED, [0, 3, 1, 4, 2])]
)
def test_programs_visit_blocks_in_the_order_of_the_pattern(order: str, visited: list[int]) -> None:
    out = torch.zeros(5, dtype=torch.int64)
    blocks_kernel[(5,)](out, *p.place_programs(order, 5), 5, SCATTERED=order == p.SCATTERED)
    assert out.tolist() == visited


@pytest.mark.parametrize("scattered", [False, True])
def test_the_number_of_a_block_is_64_bits_wide(*, scattered: bool) -> None:
    out, step = torch.zeros(3, dtype=torch.int64), (1 << 33) + 1
    blocks_kernel[(3,)](out, 1 << 36, step, 1 << 40, SCATTERED=scattered)
    assert out.tolist() == [(1 << 36) + turn * step for turn in range(3)]


def test_nothing_is_written_behind_the_end() -> None:
    whole = torch.full((200,), 7, dtype=torch.int64)
    memory.write(memory.Piece(whole[:130]), p.GATE[1], 64)
    assert whole[130:].unique().tolist() == [7]


def test_wrong_words_are_counted_listed_and_placed() -> None:
    pieces = [piece(3000, 1 << 33), piece(500, (1 << 33) + 3000)]
    pattern = p.GATE[1]
    for each in pieces:
        memory.write(each, pattern)
    pieces[0].memory[2999] ^= 1 << 21
    pieces[1].memory[4] ^= (1 << 3) | (-1 << 63)
    errors = memory.verify(pieces, pattern)
    assert errors.wrong == 2
    assert {bit: many for bit, many in enumerate(errors.bits) if many} == {3: 1, 21: 1, 63: 1}
    first, second = errors.listed
    assert (first.piece, first.offset_bytes, first.expected ^ first.actual) == (0, 2999 * 8, 1 << 21)
    assert (second.piece, second.offset_bytes, second.address) == (1, 32, (1 << 33) + 3004)
    assert first.kind == "stuck"
    assert "bits 21; virtual page 0 of 64 KiB" in str(first)


def test_more_errors_than_there_is_room_for_are_still_counted() -> None:
    made = piece(memory.LISTED * 3)
    errors = memory.verify([made], p.GATE[0].inverted())
    assert (errors.wrong, len(errors.listed)) == (memory.LISTED * 3, memory.LISTED)
    assert sum(errors.bits) == sum(
        p.compute_expected_word(p.GATE[0].inverted(), i).bit_count() for i in range(memory.LISTED * 3)
    )


def test_verifying_writes_the_next_pattern_but_leaves_a_block_with_errors_to_be_read_again() -> None:
    made, before, after = piece(4 * memory.BLOCK_WORDS + 5), p.GATE[1], p.GATE[2]
    memory.write(made, before)
    made.memory[10] ^= 1
    going = memory.Pass(before, "cpu", after)
    going.launch(made)
    assert going.errors([made]).wrong == 1
    words = made.memory.numpy().view(np.uint64)
    edge = memory.BLOCK_WORDS
    assert np.array_equal(words[edge:], numpy_words(after, 0, len(words))[edge:])
    assert np.array_equal(words[11:edge], numpy_words(before, 0, edge)[11:])


def test_a_word_read_wrongly_once_is_told_from_one_that_stays_wrong() -> None:
    word = memory.WrongWord(0, 9, 72, expected=6, actual=7, again=6)
    assert [word.kind, word._replace(again=7).kind, word._replace(again=5).kind] == ["transient", "stuck", "unstable"]


def test_good_memory_passes_all_patterns_and_a_stuck_bit_fails_those_that_want_the_other_value() -> None:
    pieces = [piece(2500), piece(0, 2500), piece(70, 2500)]
    way = memory.TritonWay()
    assert memory_sweeps.sweep_patterns(way, pieces, p.FULL[:8]) == []

    def stick() -> None:
        pieces[2].memory[3] |= 4

    zeros = p.Pattern("zeros", p.CONSTANT)
    assert [error.address for error in memory_sweeps.hold_and_verify(way, pieces, zeros, stick).listed] == [2503]
    assert memory_sweeps.hold_and_verify(way, pieces, zeros.inverted(), stick).wrong == 0


def test_verifying_many_times_in_one_launch_reads_every_block_as_often_and_lists_a_word_once() -> None:
    made = piece(5 * memory.BLOCK_WORDS + 9)
    memory.write(made, p.FULL[-1])
    made.memory[memory.BLOCK_WORDS * 3] ^= 6
    made.memory[-1] ^= 1
    errors = memory_sweeps.verify_pieces(memory.TritonWay(), [made], p.FULL[-1], repeats=7)
    assert errors.wrong == 14
    assert (errors.bits[:3], sum(errors.bits)) == ((7, 7, 7), 21)
    assert [word.address for word in errors.listed] == [memory.BLOCK_WORDS * 3, 5 * memory.BLOCK_WORDS + 8]


@pytest.mark.parametrize("repeats", [1, 3])
def test_blocks_beyond_those_set_aside_are_counted_from_memory(repeats: int) -> None:
    made, block = piece(64 * (memory.KEPT + 40) + 9), 64
    memory.write(made, p.GATE[1], block)
    made.memory[::32] ^= 5
    going = memory.Pass(p.GATE[1], "cpu")
    going.launch(made, block, repeats=repeats)
    errors = going.errors([made])
    words = -(-len(made.memory) // 32)
    assert (errors.wrong, errors.bits[:3]) == (repeats * words, (repeats * words, 0, repeats * words))
    assert {word.address for word in errors.listed} <= set(range(0, len(made.memory), 32))
    assert len(errors.listed) == words


def test_a_word_that_is_correct_when_read_again_was_transient_if_set_aside_and_counts_in_any_case() -> None:
    made, block = piece(64 * (memory.KEPT + 2)), 64
    memory.write(made, p.GATE[1], block)
    made.memory[::64] ^= 1 << 40
    going = memory.Pass(p.GATE[1], "cpu")
    going.launch(made, block)
    memory.write(made, p.GATE[1], block)
    errors = going.errors([made])
    assert (errors.wrong, errors.bits[40]) == (memory.KEPT + 2, memory.KEPT)
    assert [word.kind for word in errors.listed] == ["transient"] * memory.KEPT


def test_an_error_is_reported_once_and_the_next_pattern_is_whole_again() -> None:
    pieces = [piece(2 * memory.BLOCK_WORDS)]
    lies = p.Pattern("lies", p.CONSTANT, seed=1)

    def spoil(pattern: p.Pattern) -> None:
        if pattern == lies:
            pieces[0].memory[5] = 0

    found = memory_sweeps.sweep_patterns(memory.TritonWay(), pieces, [lies, *p.GATE], spoil)
    assert [(errors.pattern, errors.wrong) for errors in found] == [("lies", 1)]

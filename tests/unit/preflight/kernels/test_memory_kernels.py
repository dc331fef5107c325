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
from preflight.kernels.pattern_kernels import compute_program_offsets  # noqa: E402 - only where triton is

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
        raw = (at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(pattern.seed)
        raw = (raw ^ (raw >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        raw = (raw ^ (raw >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        raw = raw ^ (raw >> np.uint64(31))
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
def places_kernel(out, blocks: tl.int64, step: tl.int64, BLOCK: tl.constexpr):  # noqa: ANN201, ANN001, N803 - a kernel
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), compute_program_offsets(blocks, step, BLOCK))


def test_a_place_in_one_piece_is_64_bits_wide() -> None:
    out, step = torch.zeros(3 * 64, dtype=torch.int64), (1 << 33) + 1
    places_kernel[(3,)](out, 1 << 40, step, BLOCK=64)
    assert out.tolist() == [turn * step * 64 + i for turn in range(3) for i in range(64)]


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


def test_an_error_is_reported_once_and_the_next_pattern_is_whole_again() -> None:
    pieces = [piece(2 * memory.BLOCK_WORDS)]
    lies = p.Pattern("lies", p.CONSTANT, seed=1)

    def spoil(pattern: p.Pattern) -> None:
        if pattern == lies:
            pieces[0].memory[5] = 0

    found = memory_sweeps.sweep_patterns(memory.TritonWay(), pieces, [lies, *p.GATE], spoil)
    assert [(errors.pattern, errors.wrong) for errors in found] == [("lies", 1)]

"""The programs that keep words in registers, shared memory and L1, through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from preflight.check_context import Context, Device
from preflight.checks.on_chip_memory import check_on_chip_memory
from preflight.kernels.on_chip_kernels import ROWS, run_programs
from preflight.kernels.on_chip_words import (
    FAULT_WORD,
    HELD_WORDS,
    L1,
    MEMORIES,
    NOT_KNOWN,
    REGISTERS,
    SHARED,
    TURNS,
    build_source_words,
    find_wrong_words,
)
from preflight.results import Outcome, Result

pytestmark = pytest.mark.torch


def run(fault: str = "") -> Result:
    device = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory", memory_bytes=1 << 17)
    context = Context(device=device, devices=(device,), level="standard", seconds=0.0, fault=fault, note=lambda _: None)
    (result,) = check_on_chip_memory(context)
    return result


def test_words_come_back_as_they_went() -> None:
    result = run()
    assert (result.outcome, result.reason, result.remarks) == (Outcome.PASS, "", ())


@pytest.mark.parametrize(
    ("fault", "memory"), [("register_bit", "registers"), ("shared_bit", "shared memory"), ("l1_bit", "the L1")]
)
def test_a_flipped_bit_is_found_and_its_memory_named(fault: str, memory: str) -> None:
    result = run(fault)
    assert result.outcome is Outcome.FAIL
    assert result.reason == f"unknown SM: 1 wrong word in {memory}, bit 5; wrong again when run again"


@pytest.mark.parametrize("memory", MEMORIES)
def test_only_the_faulty_program_returns_the_flipped_word(memory: str) -> None:
    source = build_source_words(3, 4, TURNS, "cpu")
    outputs = run_programs(memory, source, 2, 2, 1, 1 << 5)
    wrong = outputs.words if memory == L1 else outputs.words ^ source.held
    assert wrong.nonzero().tolist() == [[1, FAULT_WORD]]
    assert outputs.sms.tolist() == [NOT_KNOWN] * 2


@pytest.mark.parametrize("memory", [REGISTERS, SHARED])
def test_every_turn_rewrites_every_word(memory: str) -> None:
    source = build_source_words(3, 2, 2 * TURNS, "cpu")
    source.flips[4] ^= 1 << 30
    (words,) = run_programs(memory, source, 1, 2, -1, 0).words
    assert torch.equal(words, source.held ^ 1 << 30)


def test_a_turn_moves_words_of_shared_memory_to_other_threads() -> None:
    source = build_source_words(3, 2, 1, "cpu")
    (words,) = run_programs(SHARED, source, 1, 2, -1, 0).words
    assert torch.equal(words, source.held.view(ROWS, HELD_WORDS // ROWS).T.flatten())


def test_every_line_of_the_l1_is_compared_in_the_program_that_reads_it() -> None:
    for line in range(4):
        source = build_source_words(3, 4, TURNS, "cpu")
        source.lines[line, 20] ^= 1 << 9
        outputs = run_programs(L1, source, 2, 2, -1, 0)
        bad = range(2) if line == 0 else [line // 2]  # the first line is what all others are compared with
        assert (outputs.words != 0).any(1).nonzero().flatten().tolist() == list(bad)
        assert [(each.words, each.bits) for each in find_wrong_words(L1, outputs, source)] == [(len(bad), 1 << 9)]

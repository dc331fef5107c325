from __future__ import annotations

from typing import Any

import pytest
import torch

products = pytest.importorskip("preflight.kernels.products")

from preflight.kernels import digest, operands, own_product, special  # noqa: E402 - only where triton is
from preflight.kernels.patterns import ALL_BITS, GOLDEN, MIX_1, MIX_2, expected  # noqa: E402 - the same

pytestmark = pytest.mark.torch
FP16 = products.KINDS[1]


def model_digest(words: list[int]) -> int:
    total = 0
    for at, word in enumerate(words):
        mixed = (word % (1 << 64) + (at + 1) * GOLDEN) * MIX_1 & ALL_BITS
        mixed = (mixed ^ mixed >> 32) * MIX_2 & ALL_BITS
        total += mixed ^ mixed >> 29
    return total & ALL_BITS


def test_the_digest_is_the_model_for_each_block() -> None:
    words = torch.randint(-(1 << 62), 1 << 62, (300,), generator=torch.Generator().manual_seed(1))
    made = digest.Digests(words, 1, 128)
    made.add(0, words)
    tail = [0] * (3 * 128 - 300)  # behind the end zeros are digested
    padded = [*words.tolist(), *tail]
    blocks = [model_digest([0] * 128 * b + padded[128 * b : 128 * b + 128]) for b in range(3)]
    before = [model_digest([0] * 128 * b) for b in range(3)]
    assert [d & ALL_BITS for d in made._digests[0].tolist()] == [
        (block - earlier) & ALL_BITS for block, earlier in zip(blocks, before, strict=True)
    ]


def test_a_digest_sees_any_bit_its_place_and_the_payload_of_a_nan() -> None:
    output = torch.full((8, 16), float("nan"), dtype=torch.float16)
    seen = {digest.digest(output, 16)}
    for place, bit in ((0, 0), (5, 0), (127, 8)):
        other = output.clone()
        other.view(torch.int16).view(-1)[place] ^= 1 << bit
        assert other.view(-1)[place].isnan()
        seen.add(digest.digest(other, 16))
    seen.add(digest.digest(torch.cat([other[4:], other[:4]]), 16))
    assert len(seen) == 5
    assert digest.digest(output, 16) == digest.digest(output.clone(), 16)


def test_a_digest_of_odd_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="whole 64-bit words"):
        digest.as_words(torch.zeros(3, dtype=torch.float32))


@pytest.mark.parametrize("kind", operands.FORMS)
def test_operands_are_random_never_constant_and_their_bits_can_be_verified(kind: Any) -> None:
    made = operands.operand((32, 32), kind, 7, "cpu")
    if kind.is_floating_point:
        assert 0.5 <= float(made.double().abs().min()) < float(made.double().abs().max()) < 2
        assert 0.3 < float((made.double() < 0).double().mean()) < 0.7
    assert int(digest.as_words(made)[9]) & ALL_BITS == expected(operands.operand_pattern(kind, 7), 9)
    assert operands.verify_operand(made, 7).wrong == 0
    made.view(torch.uint8).view(-1)[77] ^= 1
    (word,) = operands.verify_operand(made, 7).listed
    assert (word.offset_bytes, word.expected ^ word.actual) == (72, 1 << 40)


@pytest.mark.parametrize("kind", products.KINDS, ids=lambda kind: kind.name)
def test_repeats_agree_and_one_wrong_output_is_placed(kind: Any) -> None:
    work = products.Work(kind, 64, 5, "cpu")
    good = products.repeated(work, 3)
    assert (good.differing, good.places) == ([], [])

    def fault(repeat: int, output: Any) -> None:
        if repeat == 2:
            output[40, 9] = output[40, 9] * 2 + 64

    bad = products.repeated(work, 4, fault)
    assert (bad.digest, bad.differing) == (good.digest, [2])
    assert bad.places[0].startswith("repeat 2 [40, 9]: bits 0x")
    assert len(bad.places) == 1


def test_a_changed_operand_changes_the_digest_and_has_a_place() -> None:
    work = products.Work(FP16, 64, 5, "cpu")
    before = products.repeated(work, 2).digest
    assert work.operand_errors() == []
    work.right.view(torch.int16)[3, 2] ^= 1 << 9
    assert products.repeated(work, 2).digest != before
    (errors,) = work.operand_errors()
    assert errors.listed[0].offset_bytes == (3 * 64 + 2) * 2 // 8 * 8


def test_the_second_opinion_agrees_or_names_element_and_tile() -> None:
    left, right = (operands.operand((64, 64), torch.float16, seed, "cpu") for seed in (1, 2))
    library = left @ right
    assert own_product.disagreements(library, left, right, tile=16)[0] == 0
    library[20, 50] += 0.5
    library[62, 0], library[63, 0] = float("inf"), float("nan")
    many, listed = own_product.disagreements(library, left, right, tile=16)
    assert many == 3
    assert [(each.row, each.column, each.tile, each.sm) for each in listed] == [
        (20, 50, 7, -1),
        (62, 0, 12, -1),
        (63, 0, 12, -1),
    ]


def test_the_second_opinion_refuses_sizes_that_are_no_multiples() -> None:
    with pytest.raises(ValueError, match="multiples of 16"):
        own_product.product(torch.zeros(16, 16), torch.zeros(16, 20), 16, 16)


@pytest.mark.parametrize("name", special.FUNCTIONS)
def test_special_functions_repeat_and_are_right(name: str) -> None:
    good = special.check(name, 32, 2, 3, "cpu", products.no_fault)
    assert (good.differing, good.wrong, good.first) == ([], 0, "")

    def fault(repeat: int, output: Any) -> None:
        if repeat == 1:
            output[3, 4] = float("nan")

    bad = special.check(name, 32, 2, 3, "cpu", fault)
    assert (bad.differing, bad.wrong) == ([1], 1)
    assert bad.first.startswith(f"{name}(")

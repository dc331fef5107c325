from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.kernels import (
    arithmetic_faults,
    elementwise_functions,
    matmul_products,
    operands,
    output_elements,
    tensor_digests,
)
from preflight.kernels.memory_patterns import ALL_BITS, GOLDEN, MIX_1, MIX_2, compute_expected_word
from tests.unit.preflight.simulated_scaled_mm import list_numbers

pytestmark = pytest.mark.torch
FP16 = matmul_products.KINDS[1]


def model_digest(words: list[int]) -> int:
    total = 0
    for at, word in enumerate(words):
        mixed = (word % (1 << 64) + (at + 1) * GOLDEN) * MIX_1 & ALL_BITS
        mixed = (mixed ^ mixed >> 32) * MIX_2 & ALL_BITS
        total += mixed ^ mixed >> 29
    return total & ALL_BITS


def test_the_digest_is_the_model_for_each_block() -> None:
    words = torch.randint(-(1 << 62), 1 << 62, (300,), generator=torch.Generator().manual_seed(1))
    made = tensor_digests.OutputDigests(words, 1, 128)
    made.add(0, words)
    tail = [0] * (3 * 128 - 300)  # behind the end zeros are digested
    padded = [*words.tolist(), *tail]
    blocks = [model_digest([0] * 128 * b + padded[128 * b : 128 * b + 128]) for b in range(3)]
    before = [model_digest([0] * 128 * b) for b in range(3)]
    assert [d & ALL_BITS for d in made.of_blocks[0].tolist()] == [
        (block - earlier) & ALL_BITS for block, earlier in zip(blocks, before, strict=True)
    ]


def test_a_digest_sees_any_bit_its_place_and_the_payload_of_a_nan() -> None:
    output = torch.full((8, 16), float("nan"), dtype=torch.float16)
    seen = {tensor_digests.compute_digest(output, 16)}
    for place, bit in ((0, 0), (5, 0), (127, 8)):
        other = output.clone()
        other.view(torch.int16).view(-1)[place] ^= 1 << bit
        assert other.view(-1)[place].isnan()
        seen.add(tensor_digests.compute_digest(other, 16))
    seen.add(tensor_digests.compute_digest(torch.cat([other[4:], other[:4]]), 16))
    assert len(seen) == 5
    assert tensor_digests.compute_digest(output, 16) == tensor_digests.compute_digest(output.clone(), 16)


def test_a_digest_of_odd_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="whole 64-bit words"):
        tensor_digests.view_as_int64(torch.zeros(3, dtype=torch.float32))


@pytest.mark.parametrize("kind", operands.FORMS.keys() - {None})
def test_operands_are_random_never_constant_and_their_bits_can_be_verified(kind: Any) -> None:
    made = operands.build_operand((32, 32), kind, 7, "cpu")
    if kind.is_floating_point:
        numbers, least = list_numbers(made), 2 if kind == operands.FP4 else 0.5
        assert least <= float(numbers.abs().min()) < float(numbers.abs().max()) < 4 * least
        assert 0.3 < float((numbers < 0).double().mean()) < 0.7
    assert int(tensor_digests.view_as_int64(made)[9]) & ALL_BITS == compute_expected_word(
        operands.build_operand_pattern(kind, 7), 9
    )
    assert operands.verify_operand(made, 7).wrong == 0
    made.view(torch.uint8).view(-1)[77] ^= 1
    (word,) = operands.verify_operand(made, 7).listed
    assert (word.offset_bytes, word.expected ^ word.actual) == (72, 1 << 40)


@pytest.mark.parametrize("kind", [kind for kind in matmul_products.KINDS if not kind.block], ids=lambda kind: kind.name)
def test_repeats_agree_and_one_wrong_output_is_placed(kind: Any) -> None:
    work = matmul_products.MatmulWork(kind, 64, 5, "cpu")
    good = matmul_products.repeat_product(work, 3)
    assert (good.differing, good.places) == ([], [])

    def fault(repeat: int, output: Any) -> None:
        if repeat == 2:
            output[40, 9] = output[40, 9] * 2 + 64

    bad = matmul_products.repeat_product(work, 4, fault)
    assert (bad.digest, bad.differing) == (good.digest, [2])
    assert bad.places[0].startswith("repeat 2 [40, 9]: bits 0x")
    assert len(bad.places) == 1


def test_a_changed_operand_changes_the_digest_and_has_a_place() -> None:
    work = matmul_products.MatmulWork(FP16, 64, 5, "cpu")
    before = matmul_products.repeat_product(work, 2).digest
    assert work.operand_errors() == {}
    work.right.view(torch.int16)[3, 2] ^= 1 << 9
    assert matmul_products.repeat_product(work, 2).digest != before
    (errors,) = work.operand_errors().values()
    assert errors.listed[0].offset_bytes == (3 * 64 + 2) * 2 // 8 * 8


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", elementwise_functions.FUNCTIONS)
def test_special_functions_repeat_and_are_right(name: str, *, wide: bool) -> None:
    good = elementwise_functions.verify_function(name, 128, 2, 3, "cpu", arithmetic_faults.no_fault, wide=wide)
    assert (good.differing, good.wrong, good.first, good.numbers.wrong) == ([], 0, "", 0)

    def fault(repeat: int, output: Any) -> None:
        if repeat == 1:
            output[3, 4] = float("nan")

    bad = elementwise_functions.verify_function(name, 32, 2, 3, "cpu", fault, wide=wide)
    assert (bad.differing, bad.wrong) == ([1], 1)
    assert bad.first.startswith(f"{name}(")


@pytest.mark.parametrize("name", elementwise_functions.FUNCTIONS)
def test_a_special_function_may_be_off_by_a_little_of_its_value_however_small(name: str) -> None:
    numbers = operands.build_operand((64, 64), torch.float32, 3, "cpu")
    right = elementwise_functions.FUNCTIONS[name](numbers)
    assert not elementwise_functions.compare_with_double(name, numbers, right)[0].any()
    off = right * (1 + 2.0**-17) + right.sign() * 2.0**-20
    assert elementwise_functions.compare_with_double(name, numbers, off)[0].all()


def test_small_values_are_judged_by_their_own_size() -> None:
    nearly_nothing = torch.tensor([[-15.0]])
    assert elementwise_functions.compare_with_double("exp", nearly_nothing, torch.zeros(1, 1))[0].all()
    beside_a_zero = torch.tensor([[1.0001]])
    right = torch.log(beside_a_zero)
    assert not elementwise_functions.compare_with_double("log", beside_a_zero, right)[0].any()
    assert elementwise_functions.compare_with_double("log", beside_a_zero, right + 2.0**-22)[0].all()


def test_wide_numbers_are_of_all_sizes_and_can_be_verified() -> None:
    made = operands.build_operand((64, 64), torch.float32, 7, "cpu", wide=True)
    exponents = set(made.abs().log2().floor().int().flatten().tolist())
    assert exponents == set(range(-15, 17))
    assert operands.verify_operand(made, 7, wide=True).wrong == 0
    assert operands.verify_operand(made, 7).wrong > 0


def test_what_is_wrong_for_large_numbers_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(numbers: Any) -> Any:
        right = torch.sin(numbers)
        return right if numbers.dtype is torch.float64 else torch.where(numbers.abs() > 100, 0.7, right)

    monkeypatch.setitem(elementwise_functions.FUNCTIONS, "sin", broken)
    assert elementwise_functions.verify_function("sin", 64, 2, 3, "cpu", arithmetic_faults.no_fault).wrong == 0
    assert (
        elementwise_functions.verify_function("sin", 64, 2, 3, "cpu", arithmetic_faults.no_fault, wide=True).wrong > 500
    )


def test_what_is_too_large_has_to_be_infinite() -> None:
    numbers = torch.tensor([[90.0, 800.0, 1e5], [-90.0, -800.0, 88.0]])
    output = torch.exp(numbers)
    assert not elementwise_functions.compare_with_double("exp", numbers, output)[0].any()
    spoilt = output.clone()
    spoilt[0] = torch.tensor([1e38, -float("inf"), float("nan")])
    spoilt[1] = torch.tensor([1e-30, float("inf"), float("inf")])
    assert elementwise_functions.compare_with_double("exp", numbers, spoilt)[0].all()


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=70), st.sampled_from([16, 64]))
def test_torch_digests_as_the_model_does(words: list[int], block: int) -> None:
    made = [each & ALL_BITS for each in tensor_digests.compute_block_digests(torch.tensor(words), block).tolist()]
    padded = [*words, *[0] * (-len(words) % block)]
    whole = [model_digest([0] * at + padded[at : at + block]) for at in range(0, len(padded), block)]
    before = [model_digest([0] * at) for at in range(0, len(padded), block)]
    assert made == [(one - other) & ALL_BITS for one, other in zip(whole, before, strict=True)]


def test_more_differing_blocks_than_there_is_room_for_are_still_counted() -> None:
    words = torch.arange(32 * 64)
    made = tensor_digests.OutputDigests(words, 2, 64)
    made.add(0, words)
    made.add(1, words + 1)
    assert made.differing_repeats() == [1]
    assert len(made.differing()) == tensor_digests.KEPT


@given(st.integers(0, ALL_BITS), st.integers(0, ALL_BITS), st.sampled_from([1, 2, 4, 8]))
def test_elements_of_a_word_make_up_its_difference(was: int, ought: int, size: int) -> None:
    flips = [
        (place, actual ^ right) for place, actual, right in output_elements.find_differing_elements(was, ought, size)
    ]
    assert sum(flip << 8 * size * place for place, flip in flips) == was ^ ought
    assert all(0 < flip < 1 << 8 * size for _, flip in flips)


def test_flipped_bits_are_counted() -> None:
    assert output_elements.format_bit_counts([1 << 14, 1 << 14 | 1, 0]) == "0: 1, 14: 2"


def test_what_a_library_lacks_is_told_from_what_fails() -> None:
    assert matmul_products.is_refusal(RuntimeError("not implemented for 'Half'"))
    assert matmul_products.is_refusal(
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul")
    )
    assert matmul_products.is_refusal(
        RuntimeError(
            "scaled_gemm with `torch.float8_e8m0fnu` scales of 1x32 blocks is only supported for CUDA 12.8 and above"
        )
    )
    assert matmul_products.is_refusal(ValueError("Invalid scaling configuration.\n- For TensorWise scaling, a and b"))
    assert not matmul_products.is_refusal(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not matmul_products.is_refusal(RuntimeError("cuBLASLt internal error: heuristic returned no algorithm"))
    assert not matmul_products.is_refusal(torch.OutOfMemoryError("CUDA out of memory"))
    assert [kind.name for kind in matmul_products.KINDS if matmul_products.explain_missing_kind(kind, "cpu")] == [
        "tf32",
        "mxfp8",
        "nvfp4",
    ]

from __future__ import annotations

import pytest
import torch

own_product = pytest.importorskip("preflight.kernels.triton_matmul")

from preflight.kernels import (  # noqa: E402 - Triton is asked for first
    matmul_products,
    operands,
    output_elements,
    product_verification,
    tensor_digests,
)
from preflight.kernels.triton_matmul import NOT_KNOWN, Disagreement, TileCounts  # noqa: E402 - the same

pytestmark = pytest.mark.torch


def test_the_second_opinion_agrees_or_names_element_and_tile() -> None:
    left, right = (operands.build_operand((64, 64), torch.float16, seed, "cpu") for seed in (1, 2))
    library = left @ right
    assert own_product.find_disagreements(library, left, right, tile=16)[0] == 0
    library[20, 50] += 0.5
    library[62, 0], library[63, 0] = float("inf"), float("nan")
    many, listed = own_product.find_disagreements(library, left, right, tile=16)
    assert many == 3
    assert [(each.row, each.column, each.tile, each.sm) for each in listed] == [
        (20, 50, 7, -1),
        (62, 0, 12, -1),
        (63, 0, 12, -1),
    ]


def test_the_second_opinion_refuses_sizes_that_are_no_multiples() -> None:
    with pytest.raises(ValueError, match="multiples of 16"):
        own_product.compute_own_product(torch.zeros(16, 16), torch.zeros(16, 20), 16, 16)


@pytest.mark.parametrize("first", [1, 7, 15])
def test_the_bits_do_not_depend_on_which_tile_comes_first(first: int) -> None:
    left, right = (operands.build_operand((64, 64), torch.bfloat16, seed, "cpu") for seed in (3, 4))
    usual, _ = own_product.compute_own_product(left, right, 16, 16)
    moved, _ = own_product.compute_own_product(left, right, 16, 16, first=first)
    assert torch.equal(usual.view(torch.int16), moved.view(torch.int16))


def test_the_one_further_from_the_truth_is_wrong() -> None:
    between = Disagreement(1, 2, library=3.0, own=4.0, tile=0, sm=17, right=3.1)
    assert between.ours_is_wrong
    assert not between._replace(right=3.9).ours_is_wrong
    assert not between._replace(library=float("nan")).ours_is_wrong
    assert between._replace(own=float("nan")).ours_is_wrong
    assert "SM 17" in str(between)


def test_wrong_tiles_are_counted_where_they_were_computed() -> None:
    wrong = [[False, True], [False, False], [True, False]]
    sms = [[5, 9], [9, 5], [9, NOT_KNOWN]]
    assert own_product.count_wrong_tiles(wrong, sms) == {5: TileCounts(2, 0), 9: TileCounts(3, 2)}


def test_on_a_processor_no_multiprocessor_is_known() -> None:
    left, right = (operands.build_operand((64, 64), torch.bfloat16, seed, "cpu") for seed in (3, 4))
    assert own_product.count_tiles_by_multiprocessor(left, right, 3, tile=16) == {}


def test_tiles_have_digests_of_their_own() -> None:
    output = operands.build_operand((64, 64), torch.bfloat16, 3, "cpu")
    before = own_product._digests_of_tiles(output, 16)
    output.view(torch.int16)[17, 50] ^= 1
    assert (before != own_product._digests_of_tiles(output, 16)).nonzero().flatten().tolist() == [7]


def test_triton_and_torch_digest_alike_and_set_the_same_blocks_aside() -> None:
    output = operands.build_operand((64, 96), torch.bfloat16, 3, "cpu")
    other = output.clone()
    other.view(torch.int16)[[1, 40, 63], [2, 3, 95]] ^= 1 << 4
    both = [tensor_digests.OutputDigests(output, 2, 128, by_triton=by_triton) for by_triton in (True, False)]
    for made in both:
        made.add(0, output)
        made.add(1, other)
    assert torch.equal(both[0].of_blocks, both[1].of_blocks)
    assert both[0].differing() == both[1].differing()
    places = [
        [(each.row, each.column, each.flipped) for each in output_elements.find_wrong_elements(made, output)]
        for made in both
    ]
    assert places == [[(1, 2, 16), (40, 3, 16), (63, 95, 16)]] * 2
    assert tensor_digests.explain_missing_triton("cpu") == ""


def test_our_own_product_is_among_the_judges_and_says_where_the_library_is_wrong() -> None:
    work = matmul_products.MatmulWork(matmul_products.KINDS[1], 128, 5, "cpu")
    output = work.buffer()
    work.run(output)
    use = product_verification.LimitUse()
    assert product_verification.collect_objections(work, output, use) == []
    assert 0 < use.shares["the Triton matmul"] < 1
    output[17, 99] += 30
    said = {each.by: each for each in product_verification.collect_objections(work, output)}
    own = said["the Triton matmul"]
    assert (own.elements, own.rows, own.columns, own.sms) == (1, [17], [99], [])
    assert own.words.endswith("in fp64: the library is wrong")

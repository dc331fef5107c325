from __future__ import annotations

from typing import Any

import pytest
import torch

from preflight.kernels import checksums

pytestmark = pytest.mark.torch
SIZE = 96
TYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def matrices(kind: Any, seed: int) -> tuple[Any, Any, Any]:
    source = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(SIZE, SIZE, generator=source, dtype=torch.float64).to(kind) for _ in range(2))
    return left, right, left @ right


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(5))
def test_a_right_product_is_far_from_the_limit(kind: Any, seed: int) -> None:
    sums = checksums.verify_checksums(*matrices(kind, seed))
    assert not sums.wrong
    assert sums.excess < 0.6


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("wrong", [1e4, float("nan"), float("inf"), 3e38])
def test_one_wrong_element_is_found_in_its_row_and_column(kind: Any, wrong: float) -> None:
    left, right, output = matrices(kind, 1)
    output[17, 61] = min(wrong, torch.finfo(kind).max) if wrong == 3e38 else wrong
    sums = checksums.verify_checksums(left, right, output)
    assert (sums.rows, sums.columns) == ([17], [61])
    assert sums.excess > 1


def test_integers_must_agree_to_the_last_one() -> None:
    source = torch.Generator().manual_seed(1)
    left, right = (torch.randint(-128, 128, (SIZE, SIZE), generator=source, dtype=torch.int8) for _ in range(2))
    output = left.int() @ right.int()
    assert checksums.verify_checksums(left, right, output).excess == 0
    output[3, 4] += 1
    assert checksums.verify_checksums(left, right, output)[:2] == ([3], [4])


def test_operands_cut_to_ten_bits_are_allowed_for_tensor_float() -> None:
    left, right, _ = matrices(torch.float32, 3)
    cut_left, cut_right = ((m.view(torch.int32) & ~0x1FFF).view(torch.float32) for m in (left, right))
    output = cut_left @ cut_right
    assert checksums.verify_checksums(left, right, output).wrong
    assert not checksums.verify_checksums(left, right, output, tensor_float=True).wrong

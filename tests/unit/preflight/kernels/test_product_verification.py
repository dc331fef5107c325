from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from preflight.kernels import checksums, product_verification
from preflight.kernels.block_scales import scale_operand
from preflight.kernels.matmul_products import KINDS, MatmulWork, ProductKind
from preflight.kernels.operands import build_operand
from tests.unit.preflight.simulated_scaled_mm import build_scaled_mm, dequantise

pytestmark = pytest.mark.torch
SIZE = 128
HERE = [kind for kind in KINDS if kind.name != "tf32" and not (kind.block and None in kind)]


def made(kind: Any, seed: int = 11) -> tuple[MatmulWork, Any]:
    work = MatmulWork(kind, SIZE, seed, "cpu")
    output = work.buffer()
    work.run(output)
    return work, output


@pytest.fixture(autouse=True)
def block_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", build_scaled_mm())


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine threads that wait for each other take seconds where others compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_against_a_right_product(kind: Any, seed: int) -> None:
    assert product_verification.collect_objections(*made(kind, 100 * seed)) == []


@pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
def test_double_precision_sees_an_element_wrong_by_more_than_rounding(kind: Any) -> None:
    work, output = made(kind)
    assert product_verification.judge_by_reordered_sum(work, output, product_verification.LimitUse()) is None
    floating = output.dtype.is_floating_point
    output[3, 70] += (abs(float(output[3, 70])) + float(output.double().std())) / 16 if floating else 1
    objection = product_verification.judge_by_reordered_sum(work, output, product_verification.LimitUse())
    assert objection is not None
    assert (objection.elements, objection.rows, objection.columns) == (1, [3], [70])


@pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
def test_a_right_product_says_which_share_of_each_limit_it_used(kind: Any) -> None:
    work, output = made(kind)
    use = product_verification.LimitUse()
    product_verification.collect_objections(work, output, use)
    assert len(use.shares) == 2
    assert all(0 <= share < 1 for share in use.shares.values())
    exact = not output.dtype.is_floating_point
    assert all((share == 0) is exact for share in use.shares.values())
    output[3, 70] += 2 * (abs(float(output[3, 70])) + float(output.double().std())) if not exact else 1
    product_verification.collect_objections(work, output, use)
    assert max(use.shares.values()) > 1
    output[3, 70] = float("nan") if not exact else 0
    product_verification.collect_objections(work, output, use)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_wrong_by_itself(wrong: float) -> None:
    work, output = made(KINDS[0])
    output[5, 6] = wrong
    said = {each.by: (each.rows, each.columns) for each in product_verification.collect_objections(work, output)}
    assert said["not a number"] == ([5], [6])
    assert said["checksums"] == ([5], [6])
    assert len(said) == 3


def test_the_own_product_is_asked_where_it_can_be() -> None:
    with_triton = not product_verification.explain_missing_triton("cpu")
    assert product_verification.supports_own_product(made(KINDS[1])[0]) is with_triton
    assert not product_verification.supports_own_product(made(KINDS[0])[0])
    assert not product_verification.supports_own_product(MatmulWork(KINDS[0], 64, 1, "cpu"))
    assert not product_verification.supports_own_product(MatmulWork(KINDS[-1], SIZE, 1, "cpu"))


def test_no_multiprocessor_is_accused_on_a_processor() -> None:
    assert product_verification.find_faulty_multiprocessors(made(KINDS[0])[0]) == {}


def test_a_transposed_or_shifted_output_is_refused() -> None:
    for spoil in (lambda o: o.t().contiguous(), lambda o: torch.roll(o, 1, 0), torch.zeros_like):
        work, output = made(KINDS[0])
        assert {"checksums"} < {each.by for each in product_verification.collect_objections(work, spoil(output))}


def cut(numbers: Any, bits: int) -> Any:
    """Toward zero to so many bits of fraction: the crudest thing hardware is known to do."""
    fraction, exponent = torch.frexp(numbers)
    return torch.ldexp((fraction * 2.0 ** (bits + 1)).trunc(), exponent - bits - 1)


def summed_like_tensor_cores(left: Any, right: Any, bits: int, step: int, span: int) -> Any:
    """Sums of `step` products at a time, cut to `bits` each time; after `span` products they go on in fp32."""
    total = torch.zeros(left.shape[0], right.shape[1], dtype=torch.float64)
    part = total.clone()
    for first in range(0, left.shape[1], step):
        part = cut(part + left[:, first : first + step] @ right[first : first + step], bits)
        if (first + step) % span == 0:
            total, part = cut(total + part, 23), torch.zeros_like(part)
    return total + part


def factors(kind: ProductKind) -> list[Any]:
    """Left and right of depth 8192, a row each for a row or column of the output."""
    rows, depth = (128, 8192) if kind.block else (32, 8192)
    width = depth // 2 if kind.name == "nvfp4" else depth
    sides = [build_operand((rows, width), kind.operands, 7 + side, "cpu") for side in (0, 1)]
    if not kind.block:
        return sides
    scales = [build_operand((rows, depth // kind.block), kind.scales, 9 + side, "cpu", scale=True) for side in (0, 1)]
    exact = [dequantise(side, scale, kind.block) for side, scale in zip(sides, scales, strict=True)]
    numbers = [scale_operand(side, scale) for side, scale in zip(sides, scales, strict=True)]
    assert all(torch.equal(one.double(), other) for one, other in zip(numbers, exact, strict=True))
    return numbers


@pytest.mark.parametrize("kind", [kind for kind in HERE if kind.block], ids=lambda kind: kind.name)
def test_block_scaled_products_of_full_depth_are_exact_in_fp32(kind: ProductKind) -> None:
    left, right = factors(kind)
    exact = left.double() @ right.double().t()
    for order in (slice(None), torch.randperm(8192, generator=torch.Generator().manual_seed(1))):
        assert torch.equal((left[:, order].float() @ right[:, order].float().t()).double(), exact)


@pytest.mark.parametrize("kind", [kind for kind in HERE if kind.block], ids=lambda kind: kind.name)
def test_a_scale_that_changed_has_a_place_and_one_that_the_device_takes_wrongly_is_refused(kind: ProductKind) -> None:
    work, output = made(kind)
    scale = work.scales[1].view(torch.uint8)
    scale[77, 3] ^= 1
    ((name, errors),) = work.operand_errors().items()
    assert name == "right scale"
    assert errors.listed[0].offset_bytes == (77 * scale.shape[1] + 3) // 8 * 8
    work.run(output)
    scale[77, 3] ^= 1
    assert work.operand_errors() == {}
    assert [each.by for each in product_verification.collect_objections(work, output)][-1] == "double precision"


@pytest.mark.parametrize(
    ("name", "operand_bits", "bits", "step", "span"),
    [
        ("bf16", 7, 23, 8, 8192),
        ("fp16", 10, 23, 16, 8192),
        ("tf32", 10, 23, 4, 8192),
        ("fp8", 3, 13, 32, 128),
        ("mxfp8", 3, 13, 32, 8192),
        ("nvfp4", 5, 13, 32, 8192),
    ],
)
def test_the_limits_allow_what_tensor_cores_cut_off_in_products_of_full_depth(
    name: str, operand_bits: int, bits: int, step: int, span: int
) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    if kind.block and None in kind:
        pytest.skip(f"this torch has no {name}")
    left, right = factors(kind)
    true = left.double() @ right.double().t()
    given = [cut(each.double(), operand_bits) for each in (left, right)]
    output = summed_like_tensor_cores(given[0], given[1].t(), bits, step, span).to(kind.output)
    limit = product_verification.compute_tolerance(kind, true, left, right.t())
    excess = float(((output.double() - true).abs() / limit).max())
    assert 0 < excess < 0.6
    sums = checksums.verify_checksums(left, right.t(), output, kind=kind.operands, tensor_float=name == "tf32")
    assert not sums.wrong
    assert sums.excess < 0.6

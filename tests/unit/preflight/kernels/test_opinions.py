from __future__ import annotations

from typing import Any

import pytest
import torch

from preflight.kernels import opinions
from preflight.kernels.products import KINDS, Work

pytestmark = pytest.mark.torch
SIZE = 128
HERE = [kind for kind in KINDS if kind.name != "tf32"]


def made(kind: Any, seed: int = 11) -> tuple[Work, Any]:
    work = Work(kind, SIZE, seed, "cpu")
    output = work.buffer()
    work.run(output)
    return work, output


@pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_against_a_right_product(kind: Any, seed: int) -> None:
    assert opinions.objections(*made(kind, 100 * seed)) == []


@pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
def test_double_precision_sees_an_element_wrong_by_more_than_rounding(kind: Any) -> None:
    work, output = made(kind)
    assert opinions.by_another_order(work, output) is None
    floating = output.dtype.is_floating_point
    output[3, 70] += (abs(float(output[3, 70])) + float(output.double().std())) / 16 if floating else 1
    objection = opinions.by_another_order(work, output)
    assert objection is not None
    assert (objection.elements, objection.rows, objection.columns) == (1, [3], [70])


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_wrong_by_itself(wrong: float) -> None:
    work, output = made(KINDS[0])
    output[5, 6] = wrong
    said = {each.by: (each.rows, each.columns) for each in opinions.objections(work, output)}
    assert said["what is no number"] == ([5], [6])
    assert said["checksums"] == ([5], [6])
    assert len(said) == 3


def test_the_own_product_is_asked_where_it_can_be() -> None:
    with_triton = not opinions.without_triton("cpu")
    assert opinions.takes_own_product(made(KINDS[1])[0]) is with_triton
    assert not opinions.takes_own_product(made(KINDS[0])[0])
    assert not opinions.takes_own_product(Work(KINDS[0], 64, 1, "cpu"))
    assert not opinions.takes_own_product(Work(KINDS[-1], SIZE, 1, "cpu"))


def test_no_multiprocessor_is_accused_on_a_processor() -> None:
    assert opinions.faulty_multiprocessors(made(KINDS[0])[0]) == {}


def test_a_transposed_or_shifted_output_is_refused() -> None:
    for spoil in (lambda o: o.t().contiguous(), lambda o: torch.roll(o, 1, 0), torch.zeros_like):
        work, output = made(KINDS[0])
        assert {"checksums"} < {each.by for each in opinions.objections(work, spoil(output))}

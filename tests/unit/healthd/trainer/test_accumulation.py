"""Gradients summed over microbatches, in one process; over several ranks tests/e2e/test_elastic_membership.py has them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from healthd.trainer.adapters.pytorch_accumulation import GradientSum
from healthd.trainer.microbatches import MicrobatchSampler

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("exact", [False, True])
def test_each_step_has_the_mean_gradient_and_loss_of_all_its_microbatches(exact: bool) -> None:  # noqa: FBT001 - a parameter
    torch.manual_seed(0)
    model, data = nn.Linear(3, 1), torch.randn(12, 3)
    sampler = MicrobatchSampler(12, size=2, count=3)
    gradients = GradientSum(model.parameters(), sampler, exact=exact)
    for _, batches in zip(range(2), sampler, strict=False):
        indices = [index for batch in batches for index in batch.indices]
        for batch in batches:
            with gradients.microbatch(batch) as micro:
                micro.loss = model(data[batch.indices]).square().mean()
        loss = gradients.finish()
        wanted = model(data[indices]).square().mean()
        expected = torch.autograd.grad(wanted, list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, gradient)
        assert float(loss) == pytest.approx(float(wanted.detach()))


def test_random_numbers_follow_from_the_microbatch_alone() -> None:
    model = nn.Linear(3, 1)
    sampler = MicrobatchSampler(12, size=2, count=2)
    gradients = GradientSum(model.parameters(), sampler)
    batch = next(iter(sampler))[1]
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with gradients.microbatch(batch) as micro:
            drawn.append(torch.rand(3))
            micro.loss = model(torch.ones(1, 3)).sum()
    assert torch.equal(*drawn)


def test_a_microbatch_without_a_loss_is_named() -> None:
    model = nn.Linear(3, 1)
    sampler = MicrobatchSampler(12, size=2, count=2)
    batch = next(iter(sampler))[0]
    with (
        pytest.raises(ValueError, match="a microbatch without a loss"),
        GradientSum(model.parameters(), sampler).microbatch(batch),
    ):
        pass


def test_a_parameter_that_no_microbatch_needed_has_a_gradient_of_zeros() -> None:
    model = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])
    sampler = MicrobatchSampler(12, size=2, count=1)
    gradients = GradientSum(model.parameters(), sampler, exact=True)
    with gradients.microbatch(next(iter(sampler))[0]) as micro:
        micro.loss = model[0](torch.ones(1, 3)).sum()
    gradients.finish()
    assert model[1].weight.grad is not None
    assert not model[1].weight.grad.any()

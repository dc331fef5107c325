"""The mean gradient over the microbatches of a step, however many ranks they were dealt over.

    gradients = GradientSum(model.parameters(), sampler, exact=True)
    for batches in sampler:
        for batch in batches:
            with gradients.microbatch(batch) as micro:
                micro.loss = loss_of(model, data(batch.indices))
        loss = gradients.finish()          # on every rank: the mean loss; `grad` of each parameter is the mean gradient
        optimizer.step()

The model is a plain module, or one of `DistributedDataParallel` within its `no_sync()`: the exchange is made here.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist

from healthd.trainer.microbatches import MicrobatchSampler
from healthd.trainer.sampler import PlacedBatch


class Microbatch:
    """One of them, as the loop sees it; set its `loss`, a mean over its samples."""

    loss: torch.Tensor | None = None


class GradientSum:
    """Of one step after the other. All ranks make the same calls to `finish`."""

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], sampler: MicrobatchSampler, *, exact: bool = False
    ) -> None:
        """Call after the process group exists.

        Args:
            parameters: those that are trained. Each has a gradient after a step, of zeros where no microbatch needed it.
            sampler: deals the microbatches.
            exact: sum in the order of the microbatches, so that the sum is the same for any number of ranks, bit for bit. Each
                microbatch's gradient then goes to every rank. False: each rank sums its own, and one collective the rest, in an
                order that depends on the number of ranks.
        """
        self._parameters = [each for each in parameters if each.requires_grad]
        self._sampler, self._exact = sampler, exact
        grouped = dist.is_initialized()
        self._rank: int = dist.get_rank() if grouped else 0
        self._world: int = dist.get_world_size() if grouped else 1
        self._sum: torch.Tensor | None = None
        self._losses = torch.zeros(sampler.count, dtype=torch.float64)
        self._done = 0  # microbatches of this rank in this step

    @contextlib.contextmanager
    def microbatch(self, batch: PlacedBatch) -> Iterator[Microbatch]:
        """Around the forward pass; the backward pass follows by itself. The first one of a step clears the gradients.

        Torch's generators are seeded by the microbatch's place, so that dropout is the same on whichever rank.

        Raises:
            ValueError: no loss was set.
        """
        seed = hashlib.blake2b(batch.place.encode(), digest_size=8).digest()
        torch.manual_seed(int.from_bytes(seed, "little") >> 1)
        if not self._done:
            self._clear()  # of the step before
        micro = Microbatch()
        yield micro
        if micro.loss is None:
            raise ValueError(
                "a microbatch without a loss: set `loss` within `with gradients.microbatch(batch) as micro`"
            )
        micro.loss.backward()
        self._losses[self._sampler.numbers[self._done]] = float(micro.loss.detach())
        self._done += 1
        if self._exact:
            self._add_round(self._taken())

    def finish(self) -> torch.Tensor:
        """Give every parameter the mean gradient, once this rank's microbatches of a step are done.

        Returns:
            The mean loss over all microbatches, float64, the same on every rank.
        """
        rounds = -(-self._sampler.count // self._world)
        if self._exact and self._done < rounds:  # others have one microbatch more
            self._add_round(None)
        total = self._sum if self._exact else self._taken()
        assert total is not None  # noqa: S101 - there is at least one microbatch
        losses, device = self._losses.to(total.device), total.device
        if self._world > 1:
            if not self._exact:
                dist.all_reduce(total)
            dist.all_reduce(losses)  # each is one rank's, and zero on the others: exact
        self._give(total / self._sampler.count)
        self._sum, self._done, self._losses = None, 0, torch.zeros(self._sampler.count, dtype=torch.float64)
        return losses.to(device).mean()

    def _add_round(self, own: torch.Tensor | None) -> None:
        """Add the microbatches of one round, in their order: one of each rank, but for the last round."""
        first = self._world * (self._done - 1 if own is not None else self._done)
        buffer = torch.empty(sum(each.numel() for each in self._parameters), device=self._parameters[0].device)
        for rank in range(min(self._world, self._sampler.count - first)):
            each = own if rank == self._rank and own is not None else buffer
            if self._world > 1:
                dist.broadcast(each, rank)
            self._sum = each.clone() if self._sum is None else self._sum.add_(each)

    def _taken(self) -> torch.Tensor:
        """The gradients in one vector, taken off the parameters."""
        parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in self._parameters]
        taken = torch.cat([each.reshape(-1).float() for each in parts])
        self._clear()
        return taken

    def _clear(self) -> None:
        for each in self._parameters:
            each.grad = None

    def _give(self, vector: torch.Tensor) -> None:
        parts = vector.split([each.numel() for each in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype).clone()

"""DistributedDataParallel: what of a backward pass is waiting for the other ranks counts as communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from healthd.trainer.guard import Guard

Hook = Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def tell_communication(
    model: DistributedDataParallel, guard: Guard, *, hook: Hook = allreduce_hook, state: object = None
) -> None:
    """Split the section `backward` where the last gradients of this rank are ready.

    All-reduces of earlier buckets run beside the backward pass and delay nothing, so they are not counted. Call it once,
    after wrapping the model.

    Args:
        model: without a communication hook so far.
        guard: whose steps have the section.
        hook: what reduces a bucket; the default sums and divides as DDP itself does.
        state: what that hook gets as its first argument; for the default one the process group, None for the model's.
    """
    if state is None and hook is allreduce_hook:
        state = model.process_group

    def telling(held: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = hook(held, bucket)
        if bucket.is_last():
            guard.rest_is_communication()
        return future

    telling.__annotations__ = {}  # DDP compares them with its types, and here they are text
    model.register_comm_hook(state, telling)

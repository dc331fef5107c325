"""DDP or FSDP2 in a loop of one's own: `plain.py ddp|fsdp2 ...`."""

from __future__ import annotations

import os
import sys

import tiny
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from healthd.trainer.adapters.fsdp import require_all_ranks
from healthd.trainer.adapters.process_group import guard_of_group
from healthd.trainer.adapters.pytorch import TrainingCheckpoints
from healthd.trainer.adapters.torchrun import agent_notified


def wrapped(kind: str) -> nn.Module:
    torch.manual_seed(1)
    model = tiny.Net()
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    for layer in model.layers:
        if list(layer.parameters()):
            fully_shard(layer)
    return fully_shard(model)


def main() -> None:
    kind = sys.argv.pop(1)
    args = tiny.options()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = wrapped(kind)
    require_all_ranks(model)
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checkpoints = TrainingCheckpoints(args.checkpoints, model, optimizer)
    with agent_notified(), guard_of_group() as guard:
        for step in range(checkpoints.load_latest(), args.steps):
            with guard.step(step) as s:
                x, y = tiny.batch(step, rank)
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                tiny.record(args, step, loss.item())
                if s.checkpoint_due or (step + 1) % args.every == 0:
                    s.saved(checkpoints.save(step))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(
        0
    )  # as Python ends, torch may destroy a thread that still runs, which aborts: then all would train once more


if __name__ == "__main__":
    main()

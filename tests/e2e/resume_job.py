"""A tiny DDP job with everything that has a state: `resume_job.py PLACE STEPS PACE_SECONDS`, under RANK, WORLD_SIZE and MASTER_PORT.

Appends each step's loss, all its bits, to PLACE/losses-RANK. Saves behind its own back every 5 steps.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState
from healthd.trainer.sampler import ResumableSampler

SAMPLES, BATCH = 37, 3


def main() -> None:
    place, last = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    inner = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.BatchNorm1d(16), nn.Linear(16, 1))
    model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
    average = AveragedModel(inner, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    sampler = ResumableSampler(SAMPLES, batch_size=BATCH, rank=rank, world=world, seed=5)
    own = torch.Generator().manual_seed(rank)
    counters = Counters(seen=0)
    state = TrainingState(
        model, optimizer, per_rank={"own": own}, scheduler=scheduler, scaler=scaler, sampler=sampler, ema=average,
        counters=counters,
    )  # fmt: skip
    data = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(9))
    torch.manual_seed(100 + rank)
    random.seed(rank)
    np.random.seed(rank)  # noqa: NPY002 - the global generator is what has to come back
    with TrainingCheckpoints(place / "checkpoints", state) as checkpoints:
        first = checkpoints.load_latest()
        batches = iter(sampler)
        for step in range(first, last):
            x = data[next(batches)]
            noise = random.gauss(0.0, 1.0) + np.random.random() + torch.rand((), generator=own)  # noqa: NPY002 - same
            loss = ((model(x) - x.sum(1, keepdim=True) + 0.01 * noise) ** 2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            average.update_parameters(inner)
            sampler.advance()
            counters["seen"] += len(x)
            far = sum(float(p.double().sum()) for p in average.parameters())
            values = (loss.item(), far, scheduler.get_last_lr()[0], scaler.get_scale(), counters["seen"])
            with (place / f"losses-{rank}").open("a") as file:
                file.write(f"{step} {' '.join(float(value).hex() for value in values)}\n")
            if (step + 1) % 5 == 0:
                checkpoints.save_async(step)
            time.sleep(float(sys.argv[3]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

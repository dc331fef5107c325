"""A job as the how-to has it, with a loader: `loader_job.py PLACE STEPS DIES_AFTER WORKERS PERSISTENT`, under RANK, WORLD_SIZE, MASTER_PORT.

Saves after every second step and kills itself, at no moment of its own choosing, after the step DIES_AFTER (-1: never). Epochs
are of 5 steps, and each iterates over the loader anew. Appends each step's loss, all its bits, to PLACE/losses-RANK.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

from healthd.trainer.adapters.pytorch import TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_data import make_resumable_loader
from healthd.trainer.sampler import ResumableSampler

SAMPLES, BATCH, EPOCH = 37, 3, 5


class Augmented(Dataset[Any]):
    """Rows with noise from every generator there is."""

    def __init__(self) -> None:
        self._rows = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(9))

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._rows[index] + 0.1 * torch.randn(8) + random.gauss(0.0, 0.1) + 0.1 * np.random.random()  # noqa: NPY002 - users do so


def main() -> None:
    place, last, dies_after, workers = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    sampler = ResumableSampler(SAMPLES, batch_size=BATCH, rank=rank, world=world, seed=5)
    persistent = sys.argv[5] == "True"
    loader = make_resumable_loader(Augmented(), sampler, num_workers=workers, persistent_workers=persistent)
    state = TrainingState(model, optimizer, sampler=sampler)
    torch.manual_seed(100 + rank)
    with TrainingCheckpoints(place / "checkpoints", state) as checkpoints:
        step = checkpoints.load_latest()
        while step < last:
            for x in itertools.islice(loader, EPOCH - step % EPOCH):
                loss = ((model(x) - x.sum(1, keepdim=True) + torch.rand(())) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sampler.advance()
                with (place / f"losses-{rank}").open("a") as file:
                    file.write(f"{step} {loss.item().hex()}\n")
                if step % 2:
                    checkpoints.save(step)
                if step == dies_after:
                    os.kill(os.getpid(), signal.SIGKILL)
                step += 1
                if step == last:
                    break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A job each rank of which trains a part of its own, and nobody else has it; run by `healthctl.demo.training`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch_generations import run_guarded_job
from healthd.trainer.adapters.pytorch_job import GuardedJob
from healthd.trainer.adapters.pytorch_state import TrainingState

__all__ = ["run_guarded_job", "torch", "train"]


def train(job: GuardedJob, steps: int, folder: str, tell: Callable[[int, torch.Tensor], None]) -> None:
    torch.manual_seed(1 + job.rank)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with job.checkpoints(folder, TrainingState(model, optimizer)) as checkpoints:
        for step in range(checkpoints.load_latest(), steps):
            with job.guard.step(step) as s:
                loss = model(torch.ones(1, 4)).square().sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                dist.all_reduce(total := loss.detach().clone())
                if job.rank == 0:
                    tell(step, total)
                checkpoints.save_if_due(step, s)

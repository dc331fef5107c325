"""A job that goes on with fewer ranks when a node is lost, and with more when it is back; the loss of each step stays the same.

healthctl launch --backend local --node-names a,b,c --swap --min-nodes 1 --gate off -- python examples/train_elastic.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from healthd.trainer.adapters.pytorch_accumulation import GradientSum
from healthd.trainer.adapters.pytorch_generations import run_guarded_job
from healthd.trainer.adapters.pytorch_job import GuardedJob
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.interval import Bounds
from healthd.trainer.microbatches import MicrobatchSampler

WIDTH, SAMPLES, SIZE, COUNT = 32, 1000, 4, 6  # 6 microbatches of 4 samples, dealt over 1 to 6 ranks


def samples(indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The data set: points (batch, WIDTH), and for each the sine of their sum (batch, 1)."""
    at = torch.tensor(indices).unsqueeze(1) * 0.37 + torch.arange(WIDTH) * 1.7
    points = torch.cos(at)
    return points, torch.sin(points.sum(dim=1, keepdim=True))


def show(step: int, loss: torch.Tensor) -> None:
    """What rank 0 tells of a step."""
    if step % 25 == 0:
        print(f"step {step:4} loss {loss:.4f}", flush=True)


def train(job: GuardedJob, steps: int, folder: str, tell: Callable[[int, torch.Tensor], None] = show) -> None:
    """From the newest good state to the last step; entered again with each new number of ranks."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1)).to(job.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sampler = MicrobatchSampler(SAMPLES, size=SIZE, count=COUNT, rank=job.rank, world=job.world)
    gradients = GradientSum(model.parameters(), sampler, exact=True)
    state = TrainingState(model, optimizer, sampler=sampler)
    with job.checkpoints(folder, state, bounds=Bounds(least_s=1, most_s=5)) as checkpoints:
        for step, batches in zip(range(checkpoints.load_latest(), steps), sampler, strict=False):
            with job.guard.step(step) as s:
                for batch in batches:
                    points, wanted = samples(batch.indices)
                    with gradients.microbatch(batch) as micro:
                        micro.loss = nn.functional.mse_loss(model(points.to(job.device)), wanted.to(job.device))
                loss = gradients.finish()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                sampler.advance()
                s.report(loss=loss, grad_norm=norm)
                if job.rank == 0:
                    tell(step, loss)
                checkpoints.save_if_due(step, s, also=step + 1 == steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--checkpoints", default="build/elastic/checkpoints")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_guarded_job(lambda job: train(job, options.steps, options.checkpoints))

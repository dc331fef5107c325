"""A job whose loss turns to NaN in its first attempt, and its weights with it: `nan_job.py CHECKPOINTS LOSSES`."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from healthd.trainer.adapters.pytorch_job import guarded_job
from healthd.trainer.adapters.pytorch_state import TrainingState

POISON, STEPS, EVERY = 20, 40, 3
FOR_EVER = 10**6
PACE_S = 0.05


def main() -> None:
    checkpoints_at, losses = sys.argv[1:]
    first_attempt = os.environ["HEALTHD_ATTEMPT"] == "1"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with guarded_job() as job:
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        state = TrainingState(model, optimizer)
        with job.checkpoints(checkpoints_at, state, keep=FOR_EVER) as checkpoints:
            for step in range(checkpoints.load_latest(), FOR_EVER if first_attempt else STEPS):
                with job.guard.step(step) as s:
                    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * step + job.rank))
                    loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
                    if first_attempt and step >= POISON:
                        loss = loss * math.nan
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    s.report(loss=loss)
                    if job.rank == 0:
                        record = {"attempt": os.environ["HEALTHD_ATTEMPT"], "step": step, "loss": loss.item().hex()}
                        with Path(losses).open("a", encoding="utf-8") as file:
                            file.write(json.dumps(record) + "\n")
                    checkpoints.save_if_due(step, s, also=(step + 1) % EVERY == 0)
                    time.sleep(PACE_S if first_attempt else 0.0)


if __name__ == "__main__":
    main()

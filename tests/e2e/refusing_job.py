"""Two ranks that save steps 1 and 2 and load again; on rank 1 the state of step 2 cannot be taken. `refusing_job.py PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState
from healthd.trainer.exchange import ExchangeLimits


class Refusing(Counters):
    """As a value per rank whose code is broken on one node."""

    def load_state_dict(self, state: dict[str, float]) -> None:
        if state["step"] == 2 and dist.get_rank() == 1:
            raise ValueError("not here")
        super().load_state_dict(state)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, counters = nn.Linear(2, 2), Refusing()
    state = TrainingState(model, torch.optim.AdamW(model.parameters()), counters=counters)
    with TrainingCheckpoints(Path(sys.argv[1]) / "checkpoints", state, limits=ExchangeLimits(30)) as checkpoints:
        for step in (1, 2):
            counters["step"] = step
            checkpoints.save(step)
        begin = checkpoints.load_latest()
        print(f"begins with {begin}, counters of step {counters['step']}", flush=True)
        checkpoints.save(begin)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

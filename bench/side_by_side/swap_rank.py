"""A rank of the comparison under `healthctl launch --swap`.

python -m bench.side_by_side.swap_rank STEPS_FILE CHECKPOINTS
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import nn

from bench.side_by_side.tiny_training import StepRecorder, TinyTraining
from healthd.trainer.adapters.pytorch_generations import run_guarded_job
from healthd.trainer.adapters.pytorch_job import GuardedJob
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.interval import Bounds

STEPS = 1_000_000


def main() -> None:
    """Train until the bench ends this process."""
    recorder, checkpoints_at = StepRecorder(Path(sys.argv[1])), sys.argv[2]
    entered = 0

    def train(job: GuardedJob) -> None:
        nonlocal entered
        entered += 1
        training = TinyTraining()
        model = nn.parallel.DistributedDataParallel(training.model)
        state = TrainingState(model, training.optimizer)
        checkpoints = job.checkpoints(checkpoints_at, state, bounds=Bounds(least_s=600, most_s=1200))
        with checkpoints:
            for step in range(checkpoints.load_latest(), STEPS):
                with job.guard.step(step) as s:
                    training.optimizer.zero_grad()
                    loss = training.compute_gradients(model, step, job.rank)
                    training.optimizer.step()
                    checkpoints.save_if_due(step, s)
                recorder.record_step(step, job.rank, job.world, entered, loss)

    run_guarded_job(train)


if __name__ == "__main__":
    main()

"""The training that all ways of the comparison run: the example's GPT, with batches and dropout that follow from step and rank.

So a step's loss is the same in every way, bit for bit, as long as no update is lost, repeated or computed from fewer batches.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from healthctl.demo.training import load_example

PACE_S = 0.05
WORLD = 2  # ranks that train; spares are extra
LEARNING_RATE = 3e-3

_example = load_example()


class TinyTraining:
    """The model and its optimizer."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.model: nn.Module = _example.GPT()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)

    def compute_gradients(self, wrapped: nn.Module, step: int, rank: int) -> float:
        """One forward and backward pass of a rank through `wrapped`, which is the model or holds it; the rank's loss."""
        seed = 1000 * step + rank
        picks = torch.randint(_example.SEQUENCES, (_example.BATCH,), generator=torch.Generator().manual_seed(seed))
        torch.manual_seed(seed)
        loss = _example.loss_of(wrapped, _example.sequences(picks.tolist()))
        loss.backward()
        return float(loss.detach())


class StepRecorder:
    """Appends each finished step to a file that all ranks share, and keeps the pace of `PACE_S` a step."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._began = time.monotonic()

    def record_step(self, step: int, rank: int, world: int, generation: int, loss: float) -> None:
        """To be called as soon as the step is finished; returns when the next one may begin."""
        row = {"step": step, "rank": rank, "world": world, "generation": generation, "loss": loss.hex()}
        line = json.dumps({**row, "pid": os.getpid(), "at": time.time()}) + "\n"
        os.write(self._file, line.encode())
        time.sleep(max(0.0, self._began + PACE_S - time.monotonic()))
        self._began = time.monotonic()


def compute_reference(steps: int) -> list[str]:
    """Rank 0's losses if nothing is ever lost, computed by one process."""
    training, losses = TinyTraining(), []
    for step in range(steps):
        training.optimizer.zero_grad()
        ranks = [training.compute_gradients(training.model, step, rank) for rank in range(WORLD)]
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad /= WORLD
        training.optimizer.step()
        losses.append(ranks[0].hex())
    return losses


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(compute_reference(int(sys.argv[2]))))

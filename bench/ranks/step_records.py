"""What each rank has trained, and whether that is what an undisturbed run trains: every step, once, with the same loss."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from bench.ranks.linear_model import LinearModel


class StepRecord(NamedTuple):
    """A step that a rank has finished: the generation in which it did, and its loss to the last bit."""

    generation: int
    step: int
    loss: str


class StepLog:
    """One process' file. Each record is one write, so that a killed process leaves whole lines."""

    def __init__(self, directory: Path, member: int) -> None:
        """Args: `directory`: of all ranks; `member`: the launcher's number of this process."""
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / f"{member}.steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, generation: int, step: int, loss: float) -> None:
        """Append a record."""
        os.write(self._file, f"{generation} {step} {loss.hex()}\n".encode())


def read_records(directory: Path) -> list[StepRecord]:
    """Of all processes."""
    lines = [line.split() for path in directory.glob("*.steps") for line in path.read_text().splitlines()]
    return [StepRecord(int(generation), int(step), loss) for generation, step, loss in lines]


def list_differences(records: list[StepRecord], world: int) -> list[str]:
    """How these steps differ from those of a run of `world` ranks that nothing has disturbed; empty if they do not."""
    generations, losses = defaultdict(set), defaultdict(set)
    for generation, step, loss in records:
        generations[step].add(generation)
        losses[step].add(loss)
    found = [] if generations else ["no step was trained"]
    for step, expected in enumerate(compute_losses(max(generations, default=-1) + 1, world)):
        if not generations[step]:
            found.append(f"step {step} is lost")
        elif len(generations[step]) > 1:
            found.append(f"step {step} was trained by generations {sorted(generations[step])}")
        if wrong := losses[step] - {expected.hex()}:
            found.append(f"step {step} has a loss of {', '.join(sorted(wrong))} instead of {expected.hex()}")
    return found


def compute_losses(steps: int, world: int) -> list[float]:
    """The losses of an undisturbed run, computed in one process: ranks' parts are added up in their order, as in `Collective`."""
    model, losses = LinearModel(world), []
    for _ in range(steps):
        total = model.gradient(0, world)
        for rank in range(1, world):
            total = [a + b for a, b in zip(total, model.gradient(rank, world), strict=True)]
        losses.append(model.learn(total))
    return losses

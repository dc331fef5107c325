"""The example's training as the demo, the tests and a benchmark want it: in steps of their length, every loss on record.

healthctl launch -- python -m healthctl.demo.training --steps 100 --every 20 --checkpoints PLACE --losses FILE
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

COMMAND = (sys.executable, "-m", "healthctl.demo.training")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "train_gpt.py"


class Record:
    """Takes each step's loss on rank 0; a step lasts at least `step_seconds`."""

    def __init__(self, losses: Path | None, step_seconds: float) -> None:
        """Args: `losses`: where they are appended, a JSON object a line, with all their bits."""
        self._losses = losses
        self._step_seconds = step_seconds
        self._began = time.monotonic()

    def __call__(self, step: int, loss: torch.Tensor) -> None:
        """A step of the example."""
        if self._losses:
            record = {"step": step, "loss": loss.item().hex(), "attempt": os.environ.get("HEALTHD_ATTEMPT", "0")}
            with self._losses.open("a") as file:
                file.write(json.dumps(record) + "\n")
        time.sleep(max(0.0, self._began + self._step_seconds - time.monotonic()))
        self._began = time.monotonic()


def example(name: str = "train_gpt") -> ModuleType:
    """An example, loaded from its file: it is no package of ours."""
    file = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="a step takes at least this long")
    parser.add_argument("--checkpoints", default="checkpoints")
    parser.add_argument("--every", default="50", help="steps between checkpoints")
    parser.add_argument("--losses", type=Path, help="append each step's loss here")
    parser.add_argument("--example", default="train_gpt", help="which of the examples")
    options = parser.parse_args()
    os.environ["HEALTHD_CHECKPOINT_STEPS"] = options.every
    program = example(options.example)
    program.torch.set_num_threads(1)
    record = Record(options.losses, options.step_seconds)
    program.run_guarded_job(lambda job: program.train(job, options.steps, options.checkpoints, record))


if __name__ == "__main__":
    main()

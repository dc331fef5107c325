"""The example's training for the demo, tests and a benchmark: with a minimum step time, and every loss recorded.

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
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"


class LossRecorder:
    """Records each step's loss on rank 0; a step lasts at least `step_seconds`."""

    def __init__(self, losses: Path | None, step_seconds: float) -> None:
        """Args: `losses`: the file to append to, one JSON object per line, with exact values."""
        self._losses = losses
        self._step_seconds = step_seconds
        self._began = time.monotonic()

    def __call__(self, step: int, loss: torch.Tensor) -> None:
        """Record one step of the example."""
        if self._losses:
            record = {"step": step, "loss": loss.item().hex(), "attempt": os.environ.get("HEALTHD_ATTEMPT", "0")}
            with self._losses.open("a") as file:
                file.write(json.dumps(record) + "\n")
        time.sleep(max(0.0, self._began + self._step_seconds - time.monotonic()))
        self._began = time.monotonic()


def load_example() -> ModuleType:
    """Load the example from its file, since it is not in a package."""
    spec = importlib.util.spec_from_file_location("train_gpt", EXAMPLE)
    if spec is None or spec.loader is None:
        raise ImportError(f"{EXAMPLE} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="a step takes at least this long")
    parser.add_argument("--checkpoints", default="checkpoints")
    parser.add_argument("--every", default="50", help="steps between checkpoints")
    parser.add_argument("--losses", type=Path, help="append each step's loss here")
    options = parser.parse_args()
    os.environ["HEALTHD_CHECKPOINT_STEPS"] = options.every
    train_gpt = load_example()
    train_gpt.torch.set_num_threads(1)
    record = LossRecorder(options.losses, options.step_seconds)
    train_gpt.run_guarded_job(lambda job: train_gpt.train(job, options.steps, options.checkpoints, record))


if __name__ == "__main__":
    main()

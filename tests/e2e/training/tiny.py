"""What the training scripts of the adapter tests share: a model, data that is a function of step and rank, a record."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch import nn

WIDTH, BATCH = 12, 4
HURRY = "hurry"


class Net(nn.Module):
    """(batch, WIDTH) to (batch, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, x.sum(dim=1, keepdim=True)


def options() -> argparse.Namespace:
    """The command line that every script takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1000)
    torch.set_num_threads(1)
    return parser.parse_args()


def record(args: argparse.Namespace, step: int, loss: float) -> None:
    """Rank 0 writes each step's loss, all its bits. A step takes its time until the test has seen what it waited for."""
    if os.environ.get("RANK", "0") == "0":
        with args.losses.open("a") as file:
            file.write(json.dumps({"step": step, "loss": loss.hex()}) + "\n")
    if not (args.losses.parent / HURRY).exists():
        time.sleep(args.step_seconds)

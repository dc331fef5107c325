"""What ranks without torch train: linear regression on made-up data, with the same bits on every run."""

from __future__ import annotations

import random

from bench.ranks.collective import Collective

WEIGHTS, BATCH, RATE = 32, 4, 0.02


class LinearModel:
    """Data and result depend on the step and the world alone, bit for bit. All ranks hold the same."""

    def __init__(self) -> None:
        self.weights = [0.0] * WEIGHTS
        self.step = 0

    def gradient(self, rank: int) -> list[float]:
        """Of this rank's part of the batch; its last number is the loss."""
        chance = random.Random(self.step * 100_003 + rank)  # noqa: S311 - data to learn from
        total = [0.0] * (WEIGHTS + 1)
        for _ in range(BATCH):
            x = [chance.gauss(0, 1) for _ in range(WEIGHTS)]
            error = sum(w * value for w, value in zip(self.weights, x, strict=True)) - sum(x[:8])
            for index, value in enumerate(x):
                total[index] += error * value
            total[-1] += error * error
        return total

    def learn(self, summed: list[float], world: int) -> float:
        """One step down; the loss."""
        scale = 1 / (world * BATCH)
        self.weights = [w - RATE * g * scale for w, g in zip(self.weights, summed, strict=False)]
        self.step += 1
        return summed[-1] * scale

    def adopt_newest(self, together: Collective, rank: int, world: int) -> None:
        """Take the weights of a rank that is ahead of all: to the step that it has finished, all have given their part."""
        steps = together.sum([float(self.step) if each == rank else 0.0 for each in range(world)])
        newest = max(steps)
        mine = rank == steps.index(newest)
        self.weights = together.sum(self.weights if mine else [0.0] * WEIGHTS)
        self.step = int(newest)

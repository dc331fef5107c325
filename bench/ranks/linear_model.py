"""What ranks without torch train: a tiny linear model, in steps whose loss has the same bits on any number of ranks."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from bench.ranks.collective import Collective

WEIGHTS, BATCH, RATE = 32, 4, 0.02
GRAIN = 2.0**-30  # of the sums: whole multiples of it add up without rounding, so in any order to the same bits
_STATE = struct.Struct(f"!q{WEIGHTS}d")


class LinearModel:
    """Linear regression on made-up data that depends on the step and the microbatch alone; noise keeps the loss from vanishing."""

    def __init__(self, microbatches: int) -> None:
        """Args: `microbatches`: of a step, of all ranks together: the global batch, which stays the same on any number of ranks."""
        self.microbatches = microbatches
        self.weights = [0.0] * WEIGHTS
        self.step = 0

    def gradient(self, rank: int, world: int) -> list[float]:
        """Of this rank's microbatches; its last number is the loss."""
        total = [0.0] * (WEIGHTS + 1)
        for number in range(rank, self.microbatches, world):
            total = [a + b for a, b in zip(total, self._microbatch(number), strict=True)]
        return total

    def learn(self, summed: Sequence[float]) -> float:
        """One step down, from all ranks' gradients; the loss."""
        scale = 1 / (self.microbatches * BATCH)
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

    def to_bytes(self) -> bytes:
        """The whole state."""
        return _STATE.pack(self.step, *self.weights)

    def take_bytes(self, data: bytes) -> None:
        """Go on from this state.

        Raises:
            struct.error: it is not one.
        """
        self.step, *self.weights = _STATE.unpack(data)

    def _microbatch(self, number: int) -> list[float]:
        chance = random.Random(self.step * 100_003 + number)  # noqa: S311 - data to learn from
        total = [0.0] * (WEIGHTS + 1)
        for _ in range(BATCH):
            x = [chance.gauss(0, 1) for _ in range(WEIGHTS)]
            error = sum(w * value for w, value in zip(self.weights, x, strict=True)) - sum(x[:8]) + chance.gauss(0, 1)
            for index, value in enumerate(x):
                total[index] += error * value
            total[-1] += error * error
        return [round(value / GRAIN) * GRAIN for value in total]

"""What a rank trains: a few weights, in steps whose loss has the same bits on any number of ranks, and a chain of hashes over them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

WEIGHTS, MICROBATCHES, RATE = 4, 12, 0.05
DIGEST_BYTES = 32


class Model:
    """The state before step `step`."""

    def __init__(self) -> None:
        self.step = 0
        self.weights = [0.0] * WEIGHTS
        self.chain = ""

    def compute_part(self, rank: int, world: int) -> list[float]:
        """Gradient and loss of each microbatch that is this rank's, in its place; zero in the places of others."""
        part: list[float] = []
        for number in range(MICROBATCHES):
            part += self._microbatch(number) if number % world == rank else [0.0] * (WEIGHTS + 1)
        return part

    def learn(self, parts: Sequence[float]) -> float:
        """One step, from the sum of all ranks' parts; its loss. Added up in the order of microbatches, whoever computed them."""
        size = WEIGHTS + 1
        mean = [0.0] * size
        for at in range(0, len(parts), size):
            mean = [total + each for total, each in zip(mean, parts[at : at + size], strict=True)]
        mean = [total / MICROBATCHES for total in mean]
        self.weights = [weight - RATE * each for weight, each in zip(self.weights, mean, strict=False)]
        self.chain = hashlib.sha256(f"{self.chain}{self.step}".encode()).hexdigest()
        self.step += 1
        return mean[-1]

    def to_numbers(self) -> list[float]:
        """The whole state, as the ranks exchange it."""
        digest = bytes.fromhex(self.chain) if self.chain else bytes(DIGEST_BYTES)
        return [float(self.step), *self.weights, *map(float, digest)]

    def take_numbers(self, numbers: Sequence[float]) -> None:
        """Go on from another rank's state."""
        self.step, self.weights = int(numbers[0]), list(numbers[1 : 1 + WEIGHTS])
        self.chain = bytes(map(int, numbers[1 + WEIGHTS :])).hex() if self.step else ""

    def to_checkpoint(self) -> dict[str, Any]:
        """As a checkpoint has it: `step` is the last one that is in it."""
        return {"step": self.step - 1, "chain": self.chain, "weights": [weight.hex() for weight in self.weights]}

    def take_checkpoint(self, state: dict[str, Any]) -> None:
        """Go on after the last step that is in it."""
        self.step, self.chain = int(state["step"]) + 1, state["chain"]
        self.weights = [float.fromhex(weight) for weight in state["weights"]]

    def _microbatch(self, number: int) -> Iterator[float]:
        x = [(self.step * 31 + number * 17 + index * 7) % 97 / 97 for index in range(WEIGHTS)]
        error = -((self.step * 13 + number * 5) % 11) / 11
        for weight, value in zip(self.weights, x, strict=True):
            error += weight * value
        yield from (error * value for value in x)
        yield error * error

"""One rank of `bench.swap_ranks`: real steps, a real all-reduce, the real guard; a tiny linear model and no torch.

    python -m bench.ranks.swapped_rank --place PLACE --step-seconds 0.2

It sleeps where a GPU would compute, so that dozens of ranks fit on two cores. A process that takes a rank over gets the
state from the memory of a rank that has it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import closing
from pathlib import Path

from bench.ranks.collective import StuckError
from bench.ranks.generations import GenerationRank, Generations
from bench.ranks.linear_model import LinearModel
from bench.ranks.shared_store import SharedStore
from bench.ranks.step_records import StepLog
from healthd.trainer.guard import Guard
from healthd.trainer.rendezvous_client import MEMBER

STUCK_S = 60.0  # after which a collective is given up


class SwappedRank:
    """One process, through all generations in which it holds a rank."""

    def __init__(self, place: Path, step_seconds: float) -> None:
        self._place, self._step_seconds = place, step_seconds
        self._model = LinearModel(int(os.environ["WORLD_SIZE"]))
        self._log = StepLog(place / "steps", int(os.environ[MEMBER]))

    def train(self, held: GenerationRank) -> None:
        """Train in one generation, without an end."""
        model, had, number = self._model, self._model.step, held.generation.number
        guard = Guard.from_env(store=SharedStore(self._place / "stores" / f"{number}.json"))
        guard.enable_swap(held.swap)
        with guard:
            held.entered()
            model.adopt_newest(held.together, held.rank, held.world)
            held.loaded(model.step, had - 1)
            first = model.step
            while True:
                with guard.step(model.step) as step:
                    gradient = model.gradient(held.rank, held.world)
                    time.sleep(self._step_seconds)
                    with step.section("communication"):
                        summed = held.together.sum(gradient)
                    loss = model.learn(summed)
                    self._log.add(number, model.step - 1, loss)
                    step.report(loss=loss)
                if model.step == first + 1:
                    held.advanced(first)


def main() -> None:
    """One rank, or a spare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    options = parser.parse_args()
    rank = SwappedRank(options.place, options.step_seconds)
    try:
        with closing(Generations(STUCK_S)) as generations:
            generations.run(rank.train)
    except StuckError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

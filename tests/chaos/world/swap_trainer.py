"""A rank that the launcher may replace: it trains in one generation of the process group after the other."""

from __future__ import annotations

import os
import time
from contextlib import closing

from bench.ranks.generations import GenerationRank, Generations
from bench.ranks.shared_store import SharedStore
from healthd.trainer.exchange_limits import GenerationStore
from healthd.trainer.guard import Guard
from healthd.trainer.rendezvous_client import ADDRESS
from tests.chaos.world.job_folder import JobFolder
from tests.chaos.world.model import Model
from tests.chaos.world.network import CENTRE
from tests.chaos.world.rank_rendezvous import enter

COLLECTIVE_S = 4.0  # after which a stuck collective is given up: shorter than some partitions last


class ReplaceableRank:
    """One process of the job: a rank, or a spare that waits for one. It reaches its launcher and its peers over its node's network."""

    def __init__(self, folder: JobFolder, every: int, pace_s: float) -> None:
        self.folder, self.every, self.pace_s = folder, every, pace_s
        self.model = Model()
        self.address = enter(os.environ["HEALTHD_NODE"])

    def run(self) -> None:
        """To the end of the job."""
        _, _, port = os.environ[ADDRESS].rpartition(":")
        environ = {**os.environ, ADDRESS: f"{CENTRE}:{port}"}
        with closing(Generations(COLLECTIVE_S, environ, self.address)) as generations:
            generations.run(self.enter)

    def enter(self, place: GenerationRank) -> None:
        """Train in one generation, from the newest state that any of its ranks has."""
        number, had = place.generation.number, self.model.step - 1
        self.folder.hold(place.rank, place.world, number)
        store = SharedStore(self.folder.shared / f"store-{number}")
        guard = Guard.from_env(store=GenerationStore(store, lambda: place.swap.over))
        guard.enable_swap(place.swap)
        guard.on_abort(lambda _: None)
        with guard:
            source = self.take_newest(place)
            place.entered()
            place.loaded(self.model.step, had)
            self.folder.log("began", self.model.step)
            self.train(guard, place, source)
        self.folder.log("finished", self.model.step)

    def take_newest(self, place: GenerationRank) -> str:
        """A rank's own state where there is one, else the newest checkpoint; where it came from."""
        model, together = self.model, place.together
        alone = all(step == 0 for step in self._gather(place))
        if alone and place.rank == 0:
            self.folder.load_newest(model)
        steps = self._gather(place)
        mine = place.rank == steps.index(max(steps))
        numbers = model.to_numbers()
        model.take_numbers(together.sum(numbers if mine else [0.0] * len(numbers)))
        return "the ranks' memory" if not alone else "a checkpoint" if model.step else "the beginning"

    def train(self, guard: Guard, place: GenerationRank, source: str) -> None:
        """To the last step."""
        model, first = self.model, self.model.step
        while (step := model.step) <= self.folder.last_step():
            with guard.step(step) as s:
                time.sleep(self.pace_s)
                summed = place.together.sum(model.compute_part(place.rank, place.world))
                self.folder.log("step", step, loss=model.learn(summed).hex())
                if step == first:
                    place.advanced(step, source)
                    place.allow_resize()
                if s.checkpoint_due and s.swap:
                    place.together.sum([0.0])  # every rank holds what the others do
                    s.saved("the ranks' memory")
                elif s.checkpoint_due or (step + 1) % self.every == 0:
                    s.saved(self.save(place, asked=s.checkpoint_due))

    def save(self, place: GenerationRank, *, asked: bool) -> str:
        """Each rank its file, aside; all of them: rank 0 renames."""
        self.folder.write_part(self.model)
        place.together.sum([0.0])
        if place.rank == 0:
            self.folder.publish(self.model)
        place.together.sum([0.0])
        self.folder.log("saved", self.model.step - 1, asked=asked)
        return str(self.folder.place)

    def _gather(self, place: GenerationRank) -> list[float]:
        mine = [0.0] * place.world
        mine[place.rank] = float(self.model.step)
        return place.together.sum(mine)

"""A rank of a training job: real steps, a real all-reduce, real checkpoints, the real guard; a tiny linear model and no torch.

    python -m bench.day.trainer --place PLACE --job NAME --nodes N [--guarded] [--memory DIR]

It computes for a quarter of a second a step by sleeping, so that dozens of ranks fit on two cores; what the sleep stands for is the
GPU, and what befalls the GPU (`device`) befalls the sleep. The global batch is constant: with fewer than N ranks each sleeps longer.
Every rank writes down when it came and when it trained; rank 0 each step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

from bench.day import assumptions
from bench.day.device import Device, State
from bench.day.memory_copies import MemoryCopies, NodeMemory
from bench.day.node_step_breakdown import CHECKPOINT_EVERY
from bench.ranks.collective import Collective, StuckError
from bench.ranks.generations import GenerationRank, Generations
from bench.ranks.linear_model import WEIGHTS, LinearModel
from bench.ranks.shared_store import SharedStore
from healthd.trainer.checkpoint import Checkpoints
from healthd.trainer.checkpoint_storage.checkpoint_files import FileWriter
from healthd.trainer.exchange_limits import GenerationStore
from healthd.trainer.guard import Guard
from healthd.trainer.rendezvous_client import ADDRESS, SPARE

FORWARD_SHARE, BUSY_SHARE, NOISE = 0.35, 0.9, 0.005  # of a step; noise is the published one within a stage
LOOK_S = 0.05
SOURCES = ("the beginning", "a checkpoint", "the nodes' memory", "the ranks' memory")  # of a state


class Rank:
    """Who and where this process is. `full`: ranks of the whole job."""

    def __init__(self, place: Path, job: str, full: int) -> None:
        env, self.full = os.environ, full
        self.place, self.job = place, job
        self.node, self.attempt = env["SLURMD_NODENAME"], int(env["HEALTHD_ATTEMPT"])
        self.rank, self.world, self.generation = int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"]), 0
        self.device = Device(place / "nodes" / self.node)

    def log(self, file: str, **facts: object) -> None:
        """Append a line; short enough to be written whole."""
        line = {"at": time.time(), "job": self.job, "attempt": self.attempt, "generation": self.generation, **facts}
        with (self.place / file).open("a") as log:
            log.write(json.dumps(line) + "\n")


class Gpu:
    """The pretended GPU under this rank: computing is sleeping, until something befalls it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._born, self._seen = device.read(), device.changed()
        self._state = self._born
        if self._born.stays:
            self._befall(self._born.stays)

    def compute(self, seconds: float) -> None:
        """Take so long, or longer, or for ever, or die."""
        until = time.monotonic() + seconds * self._look().slow
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
            self._look()

    def _look(self) -> State:
        if (changed := self._device.changed()) != self._seen:
            self._seen, self._state = changed, self._device.read()
            if self._state.event != self._born.event and self._state.acts:
                self._befall(self._state.acts)
        return self._state

    def _befall(self, what: str) -> None:
        if what == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)  # as in a driver call that does not return: no thread of it goes on
        elif what == "crash":
            _end("CUDA error: an uncorrectable error was met; the context is lost")


class Unguarded:
    """The same loop without us."""

    checkpoint_due = swap = False

    @contextmanager
    def step(self, _: int) -> Iterator[Unguarded]:
        """A step."""
        yield self

    def section(self, _: str) -> nullcontext[None]:
        """A part of it."""
        return nullcontext()

    def report(self, *, loss: float) -> None:
        """Nobody hears."""

    def saved(self, path: str) -> None:
        """Nobody hears."""


class Training:
    """The loop."""

    def __init__(self, rank: Rank, *, guarded: bool, memory: MemoryCopies | None = None) -> None:
        self._rank = rank
        self._gpu: Gpu | None = None  # of a spare: once it holds a rank
        self._model, self._source = LinearModel(rank.full), SOURCES[0]
        self._memory, self._first_generation = memory, -1
        self._checkpoints = Checkpoints(rank.place / "checkpoints" / rank.job, keep=2)
        self._guarded = guarded
        self._place: GenerationRank | None = None
        self._every = CHECKPOINT_EVERY

    def run(self) -> None:
        """From the newest state on, for ever. It starts as long as a real job does."""
        rank = self._rank
        if os.environ.get(ADDRESS):
            if not os.environ.get(SPARE):
                self._begin_on_gpu()
            time.sleep(assumptions.START.here)
            with closing(Generations(assumptions.COLLECTIVE.here)) as generations:
                generations.run(self._enter)
            return
        self._begin_on_gpu()
        store = SharedStore(rank.place / "stores" / f"{rank.job}-{rank.attempt}.json")
        with Guard.from_env(store=store) if self._guarded else nullcontext(Unguarded()) as guard:
            time.sleep(assumptions.START.here)
            address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
            self._together = Collective(address, rank.rank, rank.world, assumptions.COLLECTIVE.here)
            self._take_newest()
            self._train(guard)

    def _enter(self, place: GenerationRank) -> None:
        """Train in one generation of the ranks."""
        rank = self._rank
        rank.rank, rank.world, rank.generation = place.rank, place.world, place.generation.number
        self._begin_on_gpu()
        self._together, had, self._place = place.together, self._model.step, place
        if self._first_generation < 0:
            self._first_generation = rank.generation
        store = SharedStore(rank.place / "stores" / f"{rank.job}-{rank.attempt}-{rank.generation}.json")
        guard = Guard.from_env(store=GenerationStore(store, lambda: place.swap.over))
        guard.enable_swap(place.swap)
        with guard:
            self._take_newest()
            place.entered()
            place.loaded(self._model.step, had - 1)
            self._train(guard)

    def _begin_on_gpu(self) -> None:
        if self._gpu is None:
            self._rank.log("ranks.jsonl", event="starts", node=self._rank.node, rank=self._rank.rank)
            self._gpu = Gpu(self._rank.device)

    def _take_newest(self) -> None:
        """What the rank has that is ahead of all: what it has finished, all have given their part to. Else the newest copy."""
        rank, model = self._rank, self._model
        source = 3 if model.step else self._load()
        numbers = [0.0] * (2 * rank.world)
        numbers[rank.rank], numbers[rank.world + rank.rank] = model.step, source
        numbers = self._together.sum(numbers)
        newest = max(numbers[: rank.world])
        ahead = numbers.index(newest)
        weights = self._together.sum(model.weights if rank.rank == ahead else [0.0] * WEIGHTS)
        model.step, model.weights = int(newest), weights
        self._source = SOURCES[int(numbers[rank.world + ahead])]

    def _load(self) -> int:
        """What a new process finds on its node, or rank 0 on the disk if that is newer; from which of `SOURCES`."""
        rank, model = self._rank, self._model
        newcomer = (
            0 < rank.generation == self._first_generation
        )  # its node's copies are older than what the others have
        source = 2 if self._memory and not newcomer and self._memory.load(model) else 0
        if rank.rank == 0 and (found := self._checkpoints.latest()):
            state = json.loads((found.path / "model.json").read_text())
            if state["step"] > model.step:
                model.weights, model.step = state["weights"], state["step"]
                return 1
        return source

    def _train(self, guard: Guard | Unguarded) -> None:
        model, rank, noise = self._model, self._rank, random.Random()  # noqa: S311 - of times, not of secrets
        first, gpu = model.step, self._gpu
        assert gpu is not None
        while True:
            with guard.step(model.step) as step:
                busy = assumptions.STEP.here * rank.full / rank.world * BUSY_SHARE * noise.gauss(1, NOISE)
                with step.section("forward"):
                    gradient = model.gradient(rank.rank, rank.world)
                    gpu.compute(busy * FORWARD_SHARE)
                with step.section("backward"):
                    gpu.compute(busy * (1 - FORWARD_SHARE))
                with step.section("communication"):
                    summed = self._together.sum(gradient)
                loss = model.learn(summed)
                if self._memory is not None:
                    self._memory.save(model, rank.rank, rank.world, (rank.attempt, rank.generation))
                step.report(loss=loss)
                if model.step == first + 1:
                    if self._place is not None:
                        self._place.advanced(model.step - 1, self._source)
                        self._place.allow_resize()
                    rank.log("ranks.jsonl", event="trains", node=rank.node, rank=rank.rank)
                if rank.rank == 0:
                    rank.log(
                        f"steps-{rank.job}.jsonl", step=model.step, loss=loss.hex(), world=rank.world, full=rank.full
                    )
                if step.checkpoint_due and step.swap:
                    self._together.sum([0.0])  # every rank holds what the others do
                    step.saved("the ranks' memory")
                elif step.checkpoint_due or model.step % self._every == 0:
                    with step.section("checkpoint"):
                        step.saved(self._save())

    def _save(self) -> str:
        """All wait until rank 0 has written it: every rank holds the same."""
        path = ""
        if self._rank.rank == 0:
            writer = FileWriter(self._checkpoints.open(self._model.step))
            with writer.create("model.json") as file:
                file.write(json.dumps({"step": self._model.step, "weights": self._model.weights}).encode())
            time.sleep(assumptions.CHECKPOINT_PAUSE.here)
            path = str(self._checkpoints.complete(self._model.step, self._rank.world, writer.entries))
            self._checkpoints.sweep()
        self._together.sum([0.0])
        return path or str(self._checkpoints.root)


def _end(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--nodes", type=int, required=True, help="of the whole job")
    parser.add_argument("--guarded", action="store_true")
    parser.add_argument("--memory", type=Path, help="of all nodes: where the state is kept after each step")
    options = parser.parse_args()
    rank = Rank(options.place, options.job, options.nodes)
    memory = NodeMemory(options.memory).copies(rank.node, rank.job) if options.memory else None
    try:
        Training(rank, guarded=options.guarded, memory=memory).run()
    except StuckError as error:
        _end(str(error))


if __name__ == "__main__":
    main()

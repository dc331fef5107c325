"""The files of the job: its step logs, its checkpoints, and what the run lets its ranks know."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.chaos.world.model import Model


class JobFolder:
    """As one process of the job uses it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.attempt = int(os.environ.get("HEALTHD_ATTEMPT", "0"))
        self.start = f"{self.attempt}-{os.environ.get('MASTER_PORT', '0')}-{os.getppid()}"
        self.shared = place / "meetings" / self.start  # by the ranks of one attempt
        self.shared.mkdir(parents=True, exist_ok=True)
        self.rank, self.world, self.generation = 0, 1, 0

    def hold(self, rank: int, world: int, generation: int = 0) -> None:
        """This process has that rank from now on."""
        self.rank, self.world, self.generation = rank, world, generation

    def last_step(self) -> int:
        """The run writes it at least a second ahead of the ranks."""
        file = self.place / "last_step"
        return int(file.read_text()) if file.exists() else sys.maxsize

    def load_newest(self, model: Model) -> None:
        """Go on after the newest whole checkpoint."""
        found = sorted(self.place.glob("step-*"))
        if found:
            model.take_checkpoint(json.loads((found[-1] / "rank-0.json").read_text()))

    def write_part(self, model: Model) -> None:
        """This rank's file of a checkpoint, aside."""
        mark = self.place / f"die-in-save-{self.rank}"
        if mark.exists():
            mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        aside = self._aside(model)
        aside.mkdir(exist_ok=True)
        state = model.to_checkpoint() | {"rank": self.rank, "world": self.world}
        (aside / f"rank-{self.rank}.json").write_text(json.dumps(state))

    def publish(self, model: Model) -> Path:
        """Rank 0, once all have written: the checkpoint is whole from one moment to the next."""
        whole, aside = self._whole(model), self._aside(model)
        if whole.exists():
            before = self.place / f".before-{aside.name}"
            whole.rename(before)
            aside.rename(whole)
            shutil.rmtree(before)
        else:
            aside.rename(whole)
        return whole

    def log(self, event: str, step: int, **more: object) -> None:
        """A line of the step log, short enough to be written whole."""
        said = {"at": time.time(), "mono": time.monotonic(), "event": event, "step": step, "rank": self.rank}
        said |= {"world": self.world, "attempt": self.attempt, "start": self.start, "generation": self.generation}
        said |= {"node": os.environ.get("HEALTHD_NODE", ""), "pid": os.getpid(), **more}
        with (self.place / f"steps-{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(said) + "\n")

    def _whole(self, model: Model) -> Path:
        return self.place / f"step-{model.step - 1:09d}"

    def _aside(self, model: Model) -> Path:
        return self.place / f".step-{model.step - 1:09d}-{self.start}-{self.generation}"

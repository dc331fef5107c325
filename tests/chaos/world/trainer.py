"""A rank of a tiny job: real guard, real beacon, checkpoints; no torch.

`trainer.py PLACE EVERY PACE`: trains until the step that PLACE/last_step names. The ranks meet at each step, over their nodes'
network; under a launcher that replaces ranks by `swap_trainer`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.ranks.shared_store import SharedStore
from healthd.trainer.guard import Guard
from healthd.trainer.rendezvous_client import ADDRESS
from tests.chaos.world.job_folder import JobFolder
from tests.chaos.world.model import Model
from tests.chaos.world.rank_rendezvous import Meeting, enter
from tests.chaos.world.swap_trainer import ReplaceableRank


class RestartedRank:
    """One process of a job that starts all ranks anew. Each computes the whole batch; they only wait for each other."""

    def __init__(self, folder: JobFolder, every: int, pace_s: float) -> None:
        self.folder, self.every, self.pace_s = folder, every, pace_s
        folder.hold(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        self.meeting = Meeting(folder.shared, folder.rank, folder.world, enter(os.environ["HEALTHD_NODE"]))
        self.model = Model()

    def run(self) -> None:
        """Load, train, leave, however that comes about."""
        try:
            self.folder.load_newest(self.model)
            self.train()
            self.folder.log("finished", self.model.step)
        finally:
            self.meeting.leave()

    def train(self) -> None:
        """To the last step."""
        model = self.model
        with Guard.from_env(store=SharedStore(self.folder.shared / "store")) as guard:
            guard.on_abort(lambda _: None)
            self.folder.log("began", model.step)
            while (step := model.step) <= self.folder.last_step():
                with guard.step(step) as s:
                    time.sleep(self.pace_s)
                    self.meeting.meet(f"step-{step}")
                    self.folder.log("step", step, loss=model.learn(model.compute_part(0, 1)).hex())
                    if s.checkpoint_due or (step + 1) % self.every == 0:
                        s.saved(str(self.save(asked=s.checkpoint_due)))

    def save(self, *, asked: bool) -> Path:
        """Each rank its file, aside; all of them: rank 0 renames."""
        step = self.model.step - 1
        self.folder.write_part(self.model)
        self.meeting.meet(f"written-{step}")
        if self.folder.rank == 0:
            self.folder.publish(self.model)
        self.meeting.meet(f"saved-{step}")
        self.folder.log("saved", step, asked=asked)
        return self.folder.place


if __name__ == "__main__":
    job, every, pace = JobFolder(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
    (ReplaceableRank if os.environ.get(ADDRESS) else RestartedRank)(job, every, pace).run()

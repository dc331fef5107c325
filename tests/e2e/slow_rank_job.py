"""`slow_rank_job.py PLACE CASE`: two ranks save, one of them is slow once. Prints what each save came to, and what is on the disk."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch import TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_peers import PeerCopies
from healthd.trainer.checkpoint_files import CheckpointError
from healthd.trainer.exchange import ExchangeLimits

DEADLINE_SECONDS = {"writing": 10.0, "copying": 10.0, "renaming": 6.0, "deleting": 6.0, "differing": 60.0}


class Slow:
    """In front of a function of the system: the next call waits for something, if told."""

    def __init__(self, real: Callable[..., Any], wait: Callable[[], None]) -> None:
        self.real, self.wait, self.armed = real, wait, False

    def __call__(self, *args: Any, **more: Any) -> Any:
        if self.armed:
            self.armed = False
            self.wait()
        return self.real(*args, **more)


def main() -> None:
    place, case = Path(sys.argv[1]), sys.argv[2]
    deadline_s, given_up = DEADLINE_SECONDS[case], place / "given-up"

    def until_given_up() -> None:
        while not given_up.exists():
            time.sleep(0.05)

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = TrainingState(nn.Linear(64, 64))
    root = place / "checkpoints"
    keep = 1 if case == "deleting" else 9
    checkpoints = TrainingCheckpoints(root, state, keep=keep, limits=ExchangeLimits(deadline_s))
    copies = PeerCopies(place / f"memory-{rank}", state, distance=1, limits=ExchangeLimits(deadline_s))
    fsync = Slow(os.fsync, until_given_up)
    rename = Slow(Path.rename, until_given_up if case == "copying" else lambda: time.sleep(deadline_s + 2))
    rmtree = Slow(shutil.rmtree, lambda: time.sleep(deadline_s + 2))
    os.fsync, shutil.rmtree = fsync, rmtree  # type: ignore[assignment]  # a stand-in for the system
    Path.rename = lambda self, to: (rename if to.name.startswith("step-") else rename.real)(self, to)  # type: ignore[assignment,method-assign]  # a stand-in for the system
    for step in range(4):
        fsync.armed = case == "writing" and (rank, step) == (1, 1)
        rename.armed = (case == "renaming" and (rank, step) == (0, 1)) or (case == "copying" and (rank, step) == (1, 1))
        rmtree.armed = case == "deleting" and (rank, step) == (0, 1)
        at = step + (case == "differing" and (rank, step) == (1, 1))
        dist.all_reduce(torch.ones(1))  # training's own, on its own group
        try:
            if case == "copying":
                copies.save(at)
                copies.wait()
                print("saved", step, flush=True)
            else:
                print("saved", Path(checkpoints.save(at)).name, flush=True)
        except CheckpointError as error:
            given_up.touch()
            print("failed", step, str(error).replace("\n", " "), flush=True)
    copies.close()
    checkpoints.close()
    dist.all_reduce(torch.ones(1))  # a slow end of one rank is not what loading is tried on
    begin = copies.load() if case == "copying" else checkpoints.load_latest()
    print("begins", begin, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

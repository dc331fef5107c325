"""`split_ranks_job.py PLACE`: two ranks under the DeepSpeed adapter, whose file system treats them differently. Says what each one sees."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from healthd.trainer.adapters import deepspeed
from healthd.trainer.adapters.process_group import run_on_every_rank
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError


class Engine:
    """The part of DeepSpeed's that the adapter touches."""

    global_steps = 0

    def save_checkpoint(self, directory: str, *, tag: str, **_: Any) -> None:
        """Rank 1 finds the disk full, once."""
        Path(directory, tag).mkdir(parents=True, exist_ok=True)
        if (self.global_steps, dist.get_rank()) == (2, 1):
            raise OSError(28, "No space left on device")

    def load_checkpoint(self, directory: str) -> tuple[str, dict[str, Any]]:
        """As DeepSpeed's: with a collective in it."""
        dist.barrier()
        return directory, {"from": Path(directory, "latest").read_text()}


def main() -> None:
    directory = Path(sys.argv[1]) / "c"
    dist.init_process_group("gloo")
    raw = Engine()
    engine = deepspeed.GuardedEngine(raw, directory)
    if dist.get_rank() == 1:
        deepspeed.LATEST = "not here yet"  # a shared file system may show it later to one of them
    for step in (1, 2, 3):
        raw.global_steps = step
        if (step, dist.get_rank()) == (3, 0):
            deepspeed.COMPLETE = "x" * 999
        try:
            print("saved", Path(engine.save()).name, flush=True)
        except (OSError, CheckpointError) as error:
            print("failed", step, str(error)[:40], flush=True)
        dist.all_reduce(torch.ones(1))
    print("loaded", engine.load_latest(), flush=True)
    print("told", run_on_every_rank(dist.get_rank), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

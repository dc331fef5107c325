"""One rank of a PyTorch job over gloo: python reading_rank.py HANGS_AT

In step HANGS_AT the last rank stays in its data loader for good, all others in an all_reduce; none tells its section.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from healthd.trainer.adapters.pytorch_job import guarded_job


class SlowData(Dataset[int]):
    """A data set whose file system has stopped answering."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        time.sleep(3600)
        return index


def main() -> None:
    """Train until killed."""
    hangs_at = int(sys.argv[1])
    with guarded_job() as job:
        for step in range(hangs_at + 1):
            with job.guard.step(step) as s, s.section("forward"):
                if step == hangs_at and job.rank == job.world - 1:
                    next(iter(DataLoader(SlowData())))
                dist.all_reduce(torch.ones(8))


if __name__ == "__main__":
    main()

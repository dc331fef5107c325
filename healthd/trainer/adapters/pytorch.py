"""PyTorch: what the guard needs of it; the checkpoints live beside it and are named here for who imports them here."""

from __future__ import annotations

import torch
import torch.distributed as dist

from healthd.trainer.adapters.pytorch_checkpoint import TrainingCheckpoints
from healthd.trainer.adapters.pytorch_state import Counters, TrainingState

__all__ = ["Counters", "PyTorch", "TrainingCheckpoints", "TrainingState"]


class PyTorch:
    """The guard's `Framework`."""

    def synchronize(self) -> None:
        """Wait for this rank's GPU; on a CPU a collective is complete when the backward pass returns."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def abort(self) -> None:
        """Abort every communicator, stuck or not."""
        if dist.is_available() and dist.is_initialized():
            dist.distributed_c10d._abort_process_group()  # noqa: SLF001 - torch has no public name for it

    def teardown(self) -> None:
        """Destroy every process group; all ranks do so at the same step."""
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()

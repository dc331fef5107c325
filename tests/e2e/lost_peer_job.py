"""`lost_peer_job.py PLACE VICTIM POINT`: one rank dies while the ranks copy their states; the others print whether they see that."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters import pytorch_state_transfer
from healthd.trainer.adapters.pytorch import TrainingState
from healthd.trainer.adapters.pytorch_peer_copies import CopyRefusedError, PeerCopies
from healthd.trainer.checkpoint_storage.state_copies import StateCopies


def die(*_: Any) -> Any:
    os._exit(9)


def main() -> None:
    place, victim, point = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    copies = PeerCopies(place / f"memory-{rank}", TrainingState(nn.Linear(64, 64)), distance=1)
    copies.save(0)
    copies.held_before_step()
    if rank == victim:
        module, name = {"transfer": (pytorch_state_transfer, "_read_chunk"), "finish": (StateCopies, "finish")}[point]
        setattr(module, name, die)
    copies.save(1)
    try:
        copies.held_before_step()
    except CopyRefusedError as error:
        print("lost" if error.rank_lost else f"refused: {error}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

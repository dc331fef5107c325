"""`peer_job.py PLACE LAST`: three nodes, a directory each for their memory. Goes on from what the memories hold.

Each rank saves to memory after each step and prints a digest of its state; runs until it is killed where LAST is 0.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_host_copy import iterate_leaves
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies


def plain(value: Any) -> Any:
    """Equal values alone make equal texts of it: a pickle also tells which parts are one object."""
    if isinstance(value, bytes):
        return plain(pickle.loads(value))  # noqa: S301 - this process made it
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    return value.tolist() if hasattr(value, "tolist") else value


def digest(state: TrainingState) -> str:
    found = {path: plain(leaf) for path, leaf in iterate_leaves(state.collect())}
    return hashlib.sha256(repr(found).encode()).hexdigest()


def main() -> None:
    place, last = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(10, 31), nn.Dropout(0.2), nn.Linear(31, 7))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainingState(model, optimizer, counters=Counters(seen=0))
    copies = PeerCopies(place / f"memory-{rank}", state, distance=1)
    with TrainingCheckpoints(place / "checkpoints", state) as checkpoints:
        first = checkpoints.load_latest(copies)
        print("begins", first, digest(state), flush=True)
        for step in range(first, last or 1_000_000):
            model(torch.randn(4, 10)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            copies.save(step)
            print("step", step, digest(state), flush=True)
            if step == 1:
                checkpoints.save(step)
            time.sleep(0.05)
    copies.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

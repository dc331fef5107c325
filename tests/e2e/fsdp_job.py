"""FSDP2 on CPUs: `fsdp_job.py PLACE save|load`. Rank 0 prints a digest of the whole model and optimizer state."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState


def digest(tree: Any) -> str:
    """Over every leaf, by name."""
    tree = dict(enumerate(tree))
    found = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(f"{name}.{key}", value[key])
        else:
            data = value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()
            found.update(name.encode() + data)

    add("", tree)
    return found.hexdigest()


def main() -> None:
    place, deed = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    torch.manual_seed(1 if deed == "save" else 2)
    model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 7))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    counters = Counters(seen=0)
    with TrainingCheckpoints(place / "checkpoints", TrainingState(model, optimizer, counters=counters)) as checkpoints:
        if deed == "save":
            for _ in range(3):
                model(torch.randn(4, 10)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                counters["seen"] += 4
            assert isinstance(model[0].weight, DTensor)
            checkpoints.save_async(2)
            found = digest(get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True)))
            model(torch.randn(4, 10)).square().mean().backward()  # goes on while the copy is written
            optimizer.step()
        else:
            assert checkpoints.load_latest() == 3
            found = digest(get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True)))
    if dist.get_rank() == 0:
        print("digest", found, counters["seen"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

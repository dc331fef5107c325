"""Learn to tell two spirals apart, on any number of processes."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from healthd.trainer.adapters.process_group import guard_of_group


def spirals(step: int, rank: int, size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of points (size, 2) and which arm each is on (size,)."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    arm = torch.randint(0, 2, (size,), generator=generator)
    turn = torch.rand(size, generator=generator) * 3 * math.pi
    angle = turn + arm * math.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 10
    return points + 0.02 * torch.randn(size, 2, generator=generator), arm


def main() -> None:
    """One process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--checkpoint", type=Path, default=Path("spirals.pt"))
    args = parser.parse_args()

    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29511")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def save(step: int) -> Path:
        if rank == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            aside = args.checkpoint.with_suffix(".new")
            torch.save(state, aside)
            aside.replace(args.checkpoint)
        dist.barrier()
        return args.checkpoint

    def load() -> int:
        if not args.checkpoint.exists():
            return 0
        state = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["step"] + 1

    def train(step: int) -> float:
        points, arm = (each.to(device) for each in spirals(step, rank))
        loss = nn.functional.cross_entropy(model(points), arm)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    with guard_of_group() as guard:
        for step in range(load(), args.steps):
            with guard.step(step) as s:
                loss = train(step)
                if rank == 0:
                    print(f"step {step} loss {loss!r}", flush=True)
                if s.checkpoint_due or (step + 1) % args.every == 0:
                    s.saved(save(step))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

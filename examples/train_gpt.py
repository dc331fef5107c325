"""A small GPT on deterministic data, under guard.

On an order every rank saves at one step and leaves, and the next attempt goes on from there, bit for bit.

    healthctl launch --ranks-per-node 2 -- python examples/train_gpt.py --steps 100 --checkpoints /tmp/gpt
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch import TrainingCheckpoints
from healthd.trainer.guard import Guard

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 32, 48, 4, 2, 8


class Block(nn.Module):
    """Attention and a small network, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, time, WIDTH) to the same."""
        shape = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.network(self.norms[1](x))


class GPT(nn.Module):
    """Tokens in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, time) to (batch, time, VOCABULARY)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


def batch(seed: int, step: int, rank: int, device: torch.device) -> torch.Tensor:
    """The tokens of one rank in one step, (BATCH, CONTEXT + 1): a function of its arguments, so no reader has a position."""
    generator = torch.Generator().manual_seed(hash((seed, step, rank)))
    start, stride = (torch.randint(1, VOCABULARY, (BATCH, 1), generator=generator) for _ in range(2))
    return ((start + stride * torch.arange(CONTEXT + 1)) % VOCABULARY).to(device)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of each next token."""
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def build(rank: int, seed: int, device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The wrapped model and its optimizer, in the same state on every rank."""
    torch.manual_seed(seed)
    model = nn.parallel.DistributedDataParallel(
        GPT().to(device), device_ids=[device] if device.type == "cuda" else None
    )
    for _ in range(2):  # DDP reorders its buckets after its first pass, and sums in another order: have that behind us
        loss_of(model, batch(seed, 0, rank, device)).backward()
    model.zero_grad()
    torch.manual_seed(seed + rank)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="pace: a step takes at least this long")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--every", type=int, default=50, help="steps between periodic checkpoints")
    parser.add_argument("--losses", type=Path, help="append each step's loss here, as JSON lines (rank 0)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def train(args: argparse.Namespace, guard: Guard, rank: int, device: torch.device) -> None:
    """From the latest good checkpoint to the last step."""
    model, optimizer = build(rank, args.seed, device)
    checkpoints = TrainingCheckpoints(args.checkpoints, model, optimizer)
    for step in range(checkpoints.load_latest(), args.steps):
        with guard.step(step) as s:
            began = time.monotonic()
            with s.section("data"):
                tokens = batch(args.seed, step, rank, device)
            with s.section("forward"):
                loss = loss_of(model, tokens)
            optimizer.zero_grad()
            with s.section("backward"):
                loss.backward()
            with s.section("optimizer"):
                optimizer.step()
            s.report(loss=loss, tokens=tokens.numel())
            if rank == 0 and args.losses:
                record = {"step": step, "loss": loss.item().hex(), "attempt": os.environ.get("HEALTHD_ATTEMPT", "0")}
                with args.losses.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
            if s.checkpoint_due or (step + 1) % args.every == 0:
                with s.section("checkpoint"):
                    s.saved(checkpoints.save(step))


def main() -> None:
    """One rank."""
    args = options()
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    store = dist.TCPStore(host, port, world, is_master=rank == 0, timeout=dt.timedelta(seconds=120))
    dist.init_process_group(
        "nccl" if cuda else "gloo", store=dist.PrefixStore("train", store), rank=rank, world_size=world
    )
    with Guard.from_env(store=store) as guard:
        train(args, guard, rank, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

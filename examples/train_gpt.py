"""A small GPT with all features enabled; `make example` trains it on two simulated nodes with two ranks each."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from healthd.trainer.adapters.ddp import tell_communication
from healthd.trainer.adapters.pytorch_generations import run_guarded_job
from healthd.trainer.adapters.pytorch_job import GuardedJob
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.interval import Bounds
from healthd.trainer.sampler import ResumableSampler

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 32, 48, 4, 2, 8
SEQUENCES = VOCABULARY * (VOCABULARY - 1)


class GPT(nn.Module):
    """Blocks with causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, CONTEXT) to logits (batch, CONTEXT, VOCABULARY)."""
        past = nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=tokens.device)
        return self.head(self.blocks(self.tokens(tokens) + self.places.weight, mask=past, is_causal=True))


def sequences(indices: list[int]) -> torch.Tensor:
    """The data set: (batch, CONTEXT + 1) tokens that count up from some token by some stride."""
    index = torch.tensor(indices).unsqueeze(1)
    start, stride = index % VOCABULARY, 1 + index // VOCABULARY
    return (start + stride * torch.arange(CONTEXT + 1)) % VOCABULARY


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of each next token."""
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def show(step: int, loss: torch.Tensor) -> None:
    """Print a step on rank 0."""
    if step % 25 == 0:
        print(f"step {step:4} loss {loss:.4f}", flush=True)


def train(job: GuardedJob, steps: int, folder: str, tell: Callable[[int, torch.Tensor], None] = show) -> None:
    """Train from the newest valid state to the last step; called again when a rank was replaced."""
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(GPT().to(job.device))
    tell_communication(model, job.guard)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=50)
    for _ in range(2):  # DDP sums in another order after its first pass, so a resumed run must have passed it too
        loss_of(model, sequences([job.rank]).to(job.device)).backward()
    optimizer.zero_grad()
    torch.manual_seed(1 + job.rank)
    sampler = ResumableSampler(SEQUENCES, batch_size=BATCH, rank=job.rank, world=job.world)
    state = TrainingState(model, optimizer, scheduler=scheduler, sampler=sampler)
    with job.checkpoints(
        folder, state, bounds=Bounds(least_s=1, most_s=5)
    ) as checkpoints:  # not needed for such a short run
        for step, indices in zip(range(checkpoints.load_latest(), steps), sampler, strict=False):
            with job.guard.step(step) as s:
                with s.section("data"):
                    tokens = sequences(indices).to(job.device)
                with s.section("forward"):
                    loss = loss_of(model, tokens)
                with s.section("backward"):
                    loss.backward()
                with s.section("optimizer"):
                    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    scheduler.step()
                sampler.advance()
                s.report(loss=loss, grad_norm=norm, tokens=tokens.numel())
                if job.rank == 0:
                    tell(step, loss.detach())
                checkpoints.save_if_due(step, s, also=step + 1 == steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--checkpoints", default="build/example/checkpoints")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_guarded_job(lambda job: train(job, options.steps, options.checkpoints))

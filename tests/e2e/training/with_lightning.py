"""Lightning's Trainer, two batches to an optimizer step."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tiny
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.environments import TorchElasticEnvironment

from healthd.trainer.adapters.lightning import GuardCallback, latest_checkpoint

ACCUMULATE = 2


class Module(LightningModule):
    def __init__(self, args: object) -> None:
        super().__init__()
        self.net, self.args = tiny.Net(), args

    def training_step(self, pair: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        torch.manual_seed(index)  # Lightning saves no random generators
        loss = torch.nn.functional.mse_loss(self.net(pair[0]), pair[1])
        if index % ACCUMULATE == ACCUMULATE - 1:
            tiny.record(self.args, index // ACCUMULATE, loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Loader:
    """Knows where it was: that is what Lightning asks of a loader to go on in the middle of an epoch."""

    def __init__(self, rank: int) -> None:
        self.rank, self.at = rank, 0

    def __len__(self) -> int:
        return 10_000

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while self.at < len(self):
            self.at += 1
            yield tiny.batch(self.at - 1, self.rank)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def main() -> None:
    args = tiny.options()
    torch.manual_seed(1)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")),
        strategy="ddp",
        plugins=[TorchElasticEnvironment()],
        max_steps=args.steps,
        accumulate_grad_batches=ACCUMULATE,
        use_distributed_sampler=False,
        callbacks=[GuardCallback(args.checkpoints)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = Loader(int(os.environ.get("RANK", "0")))
    trainer.fit(Module(args), loader, ckpt_path=latest_checkpoint(args.checkpoints))


if __name__ == "__main__":
    main()

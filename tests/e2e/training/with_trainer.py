"""Hugging Face's Trainer."""

from __future__ import annotations

import os

import tiny
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from healthd.trainer.adapters.huggingface import GuardCallback, latest_checkpoint


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = tiny.Net()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.net(x)
        return {"loss": torch.nn.functional.mse_loss(found, y), "logits": found}


class Data(torch.utils.data.Dataset):
    """24 steps an epoch over two ranks."""

    def __len__(self) -> int:
        return 10 * 2 * tiny.BATCH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x, y = tiny.batch(index, 0)
        return {"x": x[0], "y": y[0]}


class Record(TrainerCallback):
    def __init__(self, args: object) -> None:
        self.args = args

    def on_log(self, _args: object, state: object, _control: object, logs: dict[str, float], **_: object) -> None:
        if "loss" in logs:
            tiny.record(self.args, state.global_step - 1, logs["loss"])


def main() -> None:
    args = tiny.options()
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir=str(args.checkpoints),
        per_device_train_batch_size=tiny.BATCH,
        max_steps=args.steps,
        logging_steps=1,
        save_strategy="steps",
        save_steps=args.every,
        use_cpu=True,
        ddp_backend="gloo" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None,
        report_to=[],
        disable_tqdm=True,
        learning_rate=1e-2,
        seed=1,
    )
    trainer = Trainer(Model(), arguments, train_dataset=Data(), callbacks=[GuardCallback(), Record(args)])
    trainer.train(resume_from_checkpoint=latest_checkpoint(args.checkpoints))


if __name__ == "__main__":
    main()

"""DeepSpeed's ZeRO on a CPU, two micro-batches to an optimizer step: `with_deepspeed.py STAGE ...`."""

from __future__ import annotations

import sys

import deepspeed
import tiny
import torch

from healthd.trainer.adapters.deepspeed import GuardedEngine

ACCUMULATE = 2


def main() -> None:
    stage = int(sys.argv.pop(1))
    args = tiny.options()
    torch.manual_seed(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank = torch.distributed.get_rank()
    model = tiny.Net()
    raw, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config={
            "train_micro_batch_size_per_gpu": tiny.BATCH,
            "gradient_accumulation_steps": ACCUMULATE,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        },
    )
    with GuardedEngine(raw, args.checkpoints) as engine:
        engine.load_latest()
        for step in range(engine.global_steps, args.steps):
            for micro in range(ACCUMULATE):
                torch.manual_seed(100 * step + 10 * micro + rank)  # DeepSpeed saves no random generators
                x, y = tiny.batch(step * ACCUMULATE + micro, rank)
                loss = torch.nn.functional.mse_loss(engine(x), y)
                engine.backward(loss)
                if micro == ACCUMULATE - 1:
                    tiny.record(args, step, loss.item())
                engine.step()


if __name__ == "__main__":
    main()

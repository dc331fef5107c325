"""One rank of a job on CPUs, some of which compute wrongly: `sdc_job.py FAULT`, none, wrong, or later.

`wrong` flips a bit in each sampled product, `later` only once the rank has published all patterns.
"""

from __future__ import annotations

import sys
import time

import torch

from healthd.trainer import product_sampling
from healthd.trainer.adapters import product_digests
from healthd.trainer.adapters.pytorch_job import guarded_job

FLIPPED_BIT = 1 << 12
LATER = 4 * product_sampling.PATTERNS
_multiply = product_digests.multiply
_products = 0


def multiply_wrongly(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> None:
    """Flip one bit of the product."""
    global _products  # noqa: PLW0603 - a count of this process
    _multiply(left, right, product)
    _products += 1
    if sys.argv[1] == "wrong" or _products > LATER:
        product.view(torch.int32)[70, 3] ^= FLIPPED_BIT


def main() -> None:
    """Train until killed."""
    torch.set_num_threads(1)
    product_sampling.SHARE = 0.02  # so that the test is short
    if sys.argv[1] != "none":
        product_digests.multiply = multiply_wrongly
    with guarded_job() as job:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        step = 0
        while True:
            with job.guard.step(step) as s:
                loss = model(torch.ones(8, 4)).mean()
                loss.backward()
                s.report(loss=loss)
            time.sleep(0.02)
            step += 1


if __name__ == "__main__":
    main()

"""What sampling products costs a rank on the CPU: `python -m bench.sdc_sampling`. Tables; nothing is asserted.

One process trains a small model in steps of about 10 ms and switches sampling on and off in blocks of steps, so that the
rest of the machine disturbs both alike. The share of sampling is what its calls take of the time of the blocks with it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from healthd.trainer.adapters.product_digests import CpuProducts
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.product_sampling import SWITCH, begin_and_sample
from remediator.monitoring.digest_vote import locate_device, vote_on_digests
from vocabulary.messages.wire import ProductDigests

BLOCK_STEPS, BLOCKS, WARM_UP_STEPS = 250, 24, 50
RANKS = 16_384


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o700)
        beacon = Beacon.create(directory, RankPlacement("bench", 0, 0, 1, 0, "n1"))
        measure_training(beacon)
        beacon.close()
    measure_product()
    measure_vote()


def measure_training(beacon: Beacon) -> None:
    """Print the time of steps with sampling and without, and the share of sampling."""
    train, sampled, plain = make_training(), begin_and_sample(beacon, {SWITCH: "1"}), beacon.begin_step
    for step in range(WARM_UP_STEPS):
        sampled(step)
        train()
        beacon.end_step()
    steps: dict[bool, list[float]] = {True: [], False: []}
    begins: dict[bool, list[float]] = {True: [], False: []}
    for block in range(BLOCKS):
        on = block % 2 == 0
        begin = sampled if on else plain
        for step in range(BLOCK_STEPS):
            began = time.perf_counter()
            begin(step)
            begins[on].append(time.perf_counter() - began)
            train()
            beacon.end_step()
            steps[on].append(time.perf_counter() - began)
    share = (sum(begins[True]) - sum(begins[False])) / sum(steps[True])
    print(f"| steps of {1e3 * statistics.median(steps[False]):.1f} ms | without | with |\n|---|---:|---:|")
    for name, times in (("step, median", steps), ("begin of a step, median", begins), ("begin, longest", begins)):
        pick: Callable[[list[float]], float] = max if "longest" in name else statistics.median
        print(f"| {name} | {1e6 * pick(times[False]):.1f} µs | {1e6 * pick(times[True]):.1f} µs |")
    print(f"| share of sampling | | {share:.3%} |\n")


def make_training() -> Callable[[], None]:
    """Return one training step of a small model."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=1e-3), torch.randn(192, 512)

    def train() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return train


def measure_product() -> None:
    """Print what one product and its digest take, and making the operands."""
    began = time.perf_counter()
    products = CpuProducts()
    made = time.perf_counter() - began
    taken = []
    for number in range(500):
        began = time.perf_counter()
        products.start(number % 4)
        taken.append(time.perf_counter() - began)
    print(f"Operands, once: {1e3 * made:.1f} ms. A product: {1e6 * statistics.median(taken):.0f} µs.\n")


def measure_vote() -> None:
    """Print what one vote takes the controller."""
    right = ("a" * 16, "b" * 16, "c" * 16, "d" * 16)
    digests = {
        (locate_device(f"n{rank // 8}", f"GPU-{rank}", rank), rank): ProductDigests("H200", right)
        for rank in range(RANKS)
    }
    for words in ("all agree", "one differs"):
        began = time.perf_counter()
        vote_on_digests(digests)
        print(f"A vote of {RANKS} ranks, {words}: {1e3 * (time.perf_counter() - began):.0f} ms.")
        digests[locate_device("n5", "GPU-44", 44), 44] = ProductDigests("H200", right[::-1])


if __name__ == "__main__":
    main()

"""What saving costs training: `python bench/checkpoint.py [--root DIR] [--memory DIR]`. A table; nothing is asserted.

Two ranks over gloo train 16 layers of 1024 × 1024 with AdamW: 201 MB of state. "Stall" is how long a call keeps training,
"complete" is from the call until every rank's part is safe.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from healthd.trainer.adapters.pytorch import TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.checkpoint import CompletedSave

RANKS, LAYERS, WIDTH, SAVES, STEPS = 2, 16, 1024, 5, 8
VARIANTS = ("replicated", "sharded", "frozen")


class Training:
    """A model of one kind, and its steps."""

    def __init__(self, variant: str) -> None:
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        if variant == "frozen":  # 15 of 16 layers: a base model under a small adapter
            for layer in self.layers[:-1]:
                layer.requires_grad_(requires_grad=False)
        if variant == "sharded":
            fully_shard(self.layers, mesh=init_device_mesh("cpu", (RANKS,)))
        self.model = self.layers if variant == "sharded" else nn.parallel.DistributedDataParallel(self.layers)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-3)
        self.state = TrainingState(self.model, self.optimizer)

    def step(self) -> float:
        """Seconds of one step."""
        began = time.perf_counter()
        self.model(torch.randn(8, WIDTH)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - began


def print_save_row(what: str, saves: list[CompletedSave], steps: list[float]) -> None:
    """Medians of one way to save, bytes as means; `steps` are those that ran meanwhile."""
    stall = statistics.median(save.stall_seconds for save in saves) * 1e3
    complete = statistics.median(save.seconds for save in saves) * 1e3
    written = statistics.fmean(save.bytes_written for save in saves) / 1e6
    linked = statistics.fmean(save.bytes_linked for save in saves) / 1e6
    meanwhile = f"{statistics.median(steps) * 1e3:.0f}" if steps else ""
    print(f"| {what} | {stall:.0f} | {complete:.0f} | {written:.0f} | {linked:.0f} | {meanwhile} |", flush=True)


def measure_saves(
    training: Training,
    save: Callable[[int], object],
    wait: Callable[[], object],
    last: Callable[[], CompletedSave | None],
) -> tuple[list[CompletedSave], list[float]]:
    """Repeat: a save, steps while it is under way, its end. The first one warms up buffers and is not counted."""
    saves, steps = [], []
    for number in range(SAVES + 1):
        training.step()
        dist.barrier()
        began = time.perf_counter()
        save(number)
        called = time.perf_counter() - began
        steps.append(training.step())
        wait()
        done = last()
        assert done is not None
        if number:
            saves.append(done._replace(stall_seconds=called))
    return saves, steps[1:]


def run_rank(variant: str, root: Path, memory: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    training = Training(variant)
    alone = [training.step() for _ in range(STEPS)][2:]
    first = dist.get_rank() == 0

    def show(what: str, saves: list[CompletedSave], steps: list[float]) -> None:
        if first:
            print_save_row(f"{variant}: {what}", saves, steps)

    if first:
        print(f"| {variant}: nothing saved | | | | | {statistics.median(alone) * 1e3:.0f} |", flush=True)
    for what, incremental in (("", False), (", incremental", True)):
        with TrainingCheckpoints(root / f"{incremental}", training.state, incremental=incremental) as disk:
            show(f"synchronous{what}", measure_saves(training, disk.save, disk.wait, lambda: disk.last)[0], [])
        with TrainingCheckpoints(root / f"behind-{incremental}", training.state, incremental=incremental) as disk:
            show(f"asynchronous{what}", *measure_saves(training, disk.save_async, disk.wait, lambda: disk.last))
    copies = PeerCopies(memory / variant / str(dist.get_rank()), training.state, distance=1)
    show(
        "in memory, here and at the neighbour", *measure_saves(training, copies.save, copies.wait, lambda: copies.last)
    )
    copies.close()
    dist.destroy_process_group()


def launch_ranks(variant: str, root: Path, memory: Path) -> None:
    """The ranks as processes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = []
    for number in range(RANKS):
        environ = {**os.environ, "RANK": str(number), "WORLD_SIZE": str(RANKS)}
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        argv = [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            f"--variant={variant}",
            f"--root={root}",
            f"--memory={memory}",
        ]
        ranks.append(subprocess.Popen(argv, env=environ))
    for process in ranks:
        assert process.wait() == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--root", type=Path, default=Path(tempfile.gettempdir()), help="a directory on the disk to measure"
    )
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a directory on tmpfs")
    parser.add_argument("--only", choices=VARIANTS, nargs="+", default=VARIANTS, help="which models")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.variant:
        run_rank(args.variant, args.root, args.memory)
        return
    print("| | stall, ms | complete, ms | written by a rank, MB | linked, MB | a step meanwhile, ms |")
    print("|---|---:|---:|---:|---:|---:|")
    for variant in args.only:
        root = Path(tempfile.mkdtemp(dir=args.root, prefix="bench-"))
        memory = Path(tempfile.mkdtemp(dir=args.memory, prefix="bench-"))
        try:
            launch_ranks(variant, root, memory)
        finally:
            shutil.rmtree(root)
            shutil.rmtree(memory)


if __name__ == "__main__":
    main()

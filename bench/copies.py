"""What copying the state into the memory of two nodes costs training: `python -m bench.copies [--pairs 5]`. A table; nothing is asserted.

Two ranks over gloo, each one node, hold 1 GB of state and train in steps of 300 ms: on a core each, which the copies need as
well ("CPU"), or by sleeping most of the step, as a rank does whose GPU computes ("elsewhere"). In one run, blocks of steps with
copies and blocks without take turns. What a block with copies takes longer than the mean of the two beside it was lost to them: at
the adaptive pace to one copy, at its beginning, so that the share lost is that time against the interval that the pace has chosen.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from bench.measured_node import ROOT
from healthd.trainer.adapters.pytorch import TrainingState
from healthd.trainer.adapters.pytorch_checkpoint_schedule import StepCopies
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.checkpoint_storage.copy_pace import COPY_STEPS, choose_copy_pace
from healthd.trainer.rendezvous_client import RendezvousClient

RANKS, WIDTH, BATCH = 2, 1024, 64
STATE_BYTES, PART_BYTES = 10**9, 1 << 26
STEP_S, SLEPT_SHARE = 0.3, 0.95
WARM_STEPS = 10  # by then the pace has been reviewed
BLOCK_STEPS = 64  # a copy is complete long before
EVERY_STEP_BLOCK = 2  # where each one is copied
ROOM_BYTES = 14 * 10**9  # for each rank: its state, the staged copy, four files


class Case(NamedTuple):
    """A row: where the ranks compute, and at which pace they copy."""

    compute: str
    every_step: bool


class Block(NamedTuple):
    """Steps in a row, and the seconds that they took."""

    steps: int
    seconds: float
    copies: int


class Training:
    """1 GB of state, of which a small part is trained: what a copy costs depends on its size alone."""

    def __init__(self, compute: str) -> None:
        self._layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        frozen = [torch.rand(PART_BYTES // 4) for _ in range(STATE_BYTES // PART_BYTES)]
        for number, part in enumerate(frozen):
            self._layers.register_buffer(f"frozen{number}", part)
        self._model = nn.parallel.DistributedDataParallel(self._layers, broadcast_buffers=False)
        self._optimizer = torch.optim.AdamW(self._layers.parameters(), lr=1e-3)
        self.state = TrainingState(self._model, self._optimizer)
        self._slept_s = STEP_S * SLEPT_SHARE if compute == "elsewhere" else 0.0
        self._passes = 1
        self._calibrate()

    def step(self) -> None:
        """Forward and backward, the gradients' all-reduce, the update."""
        batch = torch.randn(BATCH, WIDTH)
        time.sleep(self._slept_s)
        with self._model.no_sync():
            for _ in range(self._passes - 1):
                self._model(batch).square().mean().backward()
        self._model(batch).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _calibrate(self) -> None:
        """As many passes as fill a step; the same number on each rank."""
        self.step()
        self._passes, began = 20, time.perf_counter()
        self.step()
        a_pass = (time.perf_counter() - began - self._slept_s) / self._passes
        wanted = torch.tensor([max(1, round((STEP_S - self._slept_s) / a_pass))])
        dist.broadcast(wanted, 0)
        self._passes = int(wanted.item())


class CopiedTraining:
    """Training whose steps are copied as a job's are, or not."""

    def __init__(self, case: Case, memory: Path) -> None:
        self._training = Training(case.compute)
        environ = {**os.environ, **({COPY_STEPS: "1"} if case.every_step else {})}
        store = dist.PrefixStore("pace", dist.group.WORLD.get_group_store())
        self.pace = choose_copy_pace(store, RANKS, environ)
        self.copies = PeerCopies(memory / str(dist.get_rank()), self._training.state, distance=1)
        nobody = RendezvousClient(("", 0), 0, "", 0)  # it has not arrived: what it sends is dropped
        self._schedule = StepCopies(self.copies, nobody, 0, self.pace)
        self._schedule.note_loaded(0)
        self._step = -1

    def warm_up(self) -> None:
        """Train as a job does that has just begun, and copies some of its first steps."""
        for _ in range(1 if self.pace.every_step else WARM_STEPS):
            if self._train():
                self._schedule.begin(self._step)

    def run(self, steps: int, *, copied: bool) -> Block:
        """A block of steps; `copied`: each of them, to the end of the last copy, or at the adaptive pace the first."""
        dist.barrier()
        began, copies = time.perf_counter(), 0
        for number in range(steps):
            self._train()
            if copied and (self.pace.every_step or number == 0):
                self._schedule.begin(self._step)
                copies += 1
        if self.pace.every_step:
            self.copies.wait()
        dist.barrier()
        return Block(steps, time.perf_counter() - began, copies)

    def _train(self) -> bool:
        """A step; whether its copy is due."""
        self._training.step()
        self._step += 1
        return self._schedule.note_trained(self._step)

    def close(self) -> None:
        """Wait for the last copy."""
        self._schedule.close()


def measure_rank(case: Case, memory: Path, pairs: int) -> None:
    """One rank's run; rank 0 prints the row."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = CopiedTraining(case, memory)
    training.warm_up()
    length = EVERY_STEP_BLOCK if case.every_step else BLOCK_STEPS
    if not case.every_step:
        training.run(length, copied=False)  # beside it the last of the first copies is completed
    without, copied = [training.run(length, copied=False)], []
    for _ in range(pairs):
        copied.append(training.run(length, copied=True))
        without.append(training.run(length, copied=False))
    training.close()
    if dist.get_rank() == 0:
        print_row(case, without, copied, training)
    dist.destroy_process_group()


def print_row(case: Case, without: list[Block], copied: list[Block], training: CopiedTraining) -> None:
    """Medians of the blocks."""
    beside = [(a.seconds + b.seconds) / 2 for a, b in itertools.pairwise(without)]
    lost = sorted((block.seconds - alone) / block.copies for block, alone in zip(copied, beside, strict=True))
    step_s = statistics.median(block.seconds / block.steps for block in without)
    steps = training.pace.interval.interval_steps
    shares = [each / (steps * step_s + each) for each in (statistics.median(lost), lost[0], lost[-1])]
    last = training.copies.last
    assert last is not None
    cells: tuple[str, ...] = (
        case.compute,
        f"{steps} steps{'' if case.every_step else ', adaptive'}",
        f"{step_s * 1e3:.0f}",
    )
    cells += (f"{last.stall_seconds * 1e3:.0f}", f"{last.seconds:.1f}", f"{statistics.median(lost) * 1e3:.0f}")
    cells += (f"**{shares[0]:.2%}**", f"{shares[1]:.2%} to {shares[2]:.2%}", f"{os.getloadavg()[0]:.1f}")
    print(f"| {' | '.join(cells)} |", flush=True)


def launch_ranks(case: Case, memory: Path, pairs: int) -> None:
    """The ranks as processes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = []
    for number in range(RANKS):
        environ = {**os.environ, "RANK": str(number), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": "1"}
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HEALTHD_JOB": f"bench-{os.getpid()}"}
        argv = [sys.executable, "-W", "ignore", "-m", "bench.copies", f"--compute={case.compute}"]
        argv += [f"--memory={memory}", f"--pairs={pairs}", *(["--every-step"] if case.every_step else [])]
        ranks.append(subprocess.Popen([*argv, "--rank"], env=environ, cwd=ROOT))
    try:
        assert [process.wait() for process in ranks] == [0] * RANKS
    finally:
        for process in ranks:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="blocks with copies")
    parser.add_argument("--compute", choices=("CPU", "elsewhere"), help="only this")
    parser.add_argument("--every-step", action="store_true", help="only the rows that copy every step")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a directory on tmpfs")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        measure_rank(Case(args.compute, args.every_step), args.memory, args.pairs)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # else gigabytes would stay in memory
    if shutil.disk_usage(args.memory).free < ROOM_BYTES:
        sys.exit(f"{args.memory}: needs {ROOM_BYTES / 1e9:.0f} GB")
    print(
        "| computes | a copy every | a step without, ms | stall, ms | complete, s | lost to a copy, ms | share lost | least to most | load |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---|---:|")
    for compute in (args.compute,) if args.compute else ("elsewhere", "CPU"):
        for every_step in (True,) if args.every_step else (False, True):
            memory = Path(tempfile.mkdtemp(dir=args.memory, prefix="bench-"))
            try:
                launch_ranks(Case(compute, every_step), memory, args.pairs)
            finally:
                shutil.rmtree(memory)


if __name__ == "__main__":
    main()

"""A job for tests of swaps on a device: what it prepares once per process must outlive each generation.

Run under `healthctl launch --swap`. Each pretend node has a GPU of its own, except that the spares share the last one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import weakref
from pathlib import Path
from typing import Any

DEVICE = next(each.partition("=")[2] for each in sys.argv if each.startswith("--device="))
os.environ["CUDA_VISIBLE_DEVICES"] = "" if DEVICE == "cpu" else "0" if os.environ.get("HEALTHD_NODE") == "n0" else "1"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # the same sums in every run

import torch  # noqa: E402 - after the choice of the device
from torch import nn  # noqa: E402 - same
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402 - same
from torch.distributed.fsdp import fully_shard  # noqa: E402 - same

from healthd.trainer.adapters.pytorch_generations import run_guarded_job  # noqa: E402 - same
from healthd.trainer.adapters.pytorch_job import GuardedJob  # noqa: E402 - same
from healthd.trainer.adapters.pytorch_state import TrainingState  # noqa: E402 - same

WIDTH, BATCH = 64, 8


class FixedFunction:
    """A function of a batch, made once for the process: a CUDA graph, or on the CPU the plain function."""

    def __init__(self, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(7)
        self._weight = torch.randn(WIDTH, WIDTH, generator=generator).to(device)
        self._input = torch.zeros(BATCH, WIDTH, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.captures = 1
        if device.type == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.compute()
            torch.cuda.current_stream().wait_stream(side)
            self._graph = torch.cuda.CUDAGraph()
            # other threads, such as NCCL's watchdog, may use the device meanwhile
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._output = self.compute()

    def compute(self) -> torch.Tensor:
        """Of what is in the input."""
        return torch.relu(self._input @ self._weight)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Of this batch."""
        self._input.copy_(batch)
        if self._graph is None:
            return self.compute()
        self._graph.replay()
        return self._output.clone()


class Lasting:
    """What this process keeps from one generation to the next, and how often it had to be made."""

    def __init__(self) -> None:
        self.fixed: FixedFunction | None = None
        self.compilations = 0
        self.models: list[weakref.ref[nn.Module]] = []
        self.scale = torch.compile(lambda batch: torch.tanh(batch) * 0.5 + batch.mean(), backend=self._compile)

    def _compile(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.compilations += 1
        if DEVICE == "cpu":  # the compiler for CPUs takes half a minute
            return graph.forward
        return torch._inductor.compile(graph, inputs)  # as torch.compile does by itself

    def features(self, batch: torch.Tensor) -> torch.Tensor:
        """A batch as the model takes it; the graph and the plain function agree."""
        self.fixed = self.fixed or FixedFunction(batch.device)
        found = self.fixed(batch)
        torch.testing.assert_close(found, self.fixed.compute())
        scaled: torch.Tensor = self.scale(found)
        return scaled

    def note(self, job: GuardedJob, notes: Path) -> None:
        """What the test asserts, at the first step of a generation."""
        gc.collect()
        alive = sum(each() is not None for each in self.models[:-1])
        allocated = torch.cuda.memory_allocated() if job.device.type == "cuda" else 0
        entry = {"pid": os.getpid(), "generation": job.generation, "rank": job.rank, "device": job.device.type}
        made = {"captures": self.fixed.captures if self.fixed else 0, "compilations": self.compilations}
        with notes.open("a") as file:
            file.write(json.dumps(entry | made | {"old_models": alive, "allocated": allocated}) + "\n")


def make_model(job: GuardedJob, kind: str) -> nn.Module:
    """The same on all ranks and in all generations, for this generation's process group."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).to(job.device)
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh(job.device.type, (job.world,))
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(job: GuardedJob, options: argparse.Namespace, lasting: Lasting) -> None:
    """From the newest state to the last step."""
    model = make_model(job, options.model)
    lasting.models.append(weakref.ref(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with job.checkpoints(options.checkpoints, TrainingState(model, optimizer)) as checkpoints:
        begin = checkpoints.load_latest()
        for step in range(begin, options.steps):
            with job.guard.step(step) as s:
                time.sleep(options.step_seconds)
                batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1000 * step + job.rank))
                loss = model(lasting.features(batch.to(job.device))).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                s.report(loss=loss)
                if job.rank == 0:
                    record = {"step": step, "loss": loss.item().hex()}
                    with options.losses.open("a") as file:
                        file.write(json.dumps(record) + "\n")
                checkpoints.save_if_due(step, s, also=step + 1 == options.steps)
            if step == begin:
                lasting.note(job, options.notes)


def main() -> None:
    """As `TrainingJob.start` calls it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--model", choices=["ddp", "fsdp"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int)
    parser.add_argument("--step-seconds", type=float, required=True)
    for name in ("--checkpoints", "--losses", "--notes"):
        parser.add_argument(name, type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lasting = Lasting()
    run_guarded_job(lambda job: train(job, options, lasting))


if __name__ == "__main__":
    main()

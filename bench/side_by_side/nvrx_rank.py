"""A rank of the comparison under NVIDIA's in-process restart, made as its `optimal_example.py` is: model made once, one reserve rank.

python -m bench.side_by_side.nvrx_rank STEPS_FILE '{"collective_s": 10, "wrapper": {"last_call_wait": 1}}'. The ranks
share the state through a file in memory, written after every step, as in-process restart leaves that to the program.
"""

import importlib
import json
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.side_by_side.tiny_training import WORLD, StepRecorder, TinyTraining

inprocess = importlib.import_module("nvidia_resiliency_ext.inprocess")
CallWrapper = (
    inprocess.CallWrapper
)  # the wrapper finds the parameter by this annotation, so annotations are no strings here

STEPS_FILE, OPTIONS = Path(sys.argv[1]), json.loads(sys.argv[2])
CHECKPOINT = STEPS_FILE.parent / "checkpoint.pt"


def train(
    store: Any,
    training: TinyTraining,
    recorder: StepRecorder,
    call_wrapper: CallWrapper = None,  # type: ignore[valid-type]  # known only at run time
) -> None:
    """One iteration of the wrapper: a new process group, the newest state, and steps until a rank is lost."""
    wrapper: Any = call_wrapper
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    iteration = wrapper.iteration
    store = dist.PrefixStore(str(iteration), store)
    limit = timedelta(seconds=OPTIONS["collective_s"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    model, step = nn.parallel.DistributedDataParallel(training.model), 0
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        training.model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while True:
        training.optimizer.zero_grad()
        loss = training.compute_gradients(model, step, rank)
        training.optimizer.step()
        if rank == 0:
            with wrapper.atomic():
                save_checkpoint(training, step + 1)
        recorder.record_step(step, rank, world, iteration, loss)
        step += 1


def save_checkpoint(training: TinyTraining, step: int) -> None:
    """The state before `step`, whole or not at all."""
    draft = CHECKPOINT.with_suffix(".draft")
    state = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(), "step": step}
    torch.save(state, draft)
    draft.replace(CHECKPOINT)


def main() -> None:
    """Train until the bench ends this process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    training, recorder = TinyTraining(), StepRecorder(STEPS_FILE)
    port, rank = int(os.environ["MASTER_PORT"]), int(os.environ["RANK"])
    store = dist.TCPStore(
        "localhost", port + 1, world_size=int(os.environ["WORLD_SIZE"]), is_master=rank == 0, multi_tenant=True
    )
    assignment = inprocess.rank_assignment
    wrap = inprocess.Wrapper(
        store_kwargs={"port": port + 2},
        rank_assignment=inprocess.Compose(assignment.MaxActiveWorldSize(WORLD), assignment.ShiftRanks()),
        monitor_process_logfile=str(STEPS_FILE.parent.absolute() / "monitor-{rank}.log"),
        **{name: timedelta(seconds=seconds) for name, seconds in OPTIONS["wrapper"].items()},
    )
    wrap(train)(store, training, recorder)


if __name__ == "__main__":
    main()

"""A replica group of one rank of the comparison under torchft, made as its `train_ddp.py` is.

python -m bench.side_by_side.torchft_replica STEPS_FILE '{"number": 0, ...}'; the options are `TorchftOptions`.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bench.side_by_side.tiny_training import WORLD, StepRecorder, TinyTraining


@dataclass(frozen=True)
class TorchftOptions:
    """Of one replica; its settings are in seconds."""

    number: int
    replicas: int
    lighthouse: str
    collective_s: float
    manager_s: float
    heartbeat_s: float

    @property
    def has_spare(self) -> bool:
        """Whether one more replica than needed follows along with zero gradients."""
        return self.replicas > WORLD


def make_manager(torchft: Any, training: TinyTraining, options: TorchftOptions) -> Any:
    """A manager of torchft for a group of one rank, with a store of its own."""
    modes = importlib.import_module("torchft.manager").WorldSizeMode
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def load(state: dict[str, Any]) -> None:
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])

    def save() -> dict[str, Any]:
        return {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=options.collective_s)),
        load_state_dict=load,
        state_dict=save,
        min_replica_size=WORLD if options.has_spare else 1,
        world_size_mode=modes.FIXED_WITH_SPARES if options.has_spare else modes.DYNAMIC,
        timeout=timedelta(seconds=options.manager_s),
        heartbeat_interval=timedelta(seconds=options.heartbeat_s),
        init_sync=False,  # all replicas begin with the same weights
        replica_id=f"replica_{options.number}",
        lighthouse_addr=options.lighthouse,
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        hostname="localhost",
    )
    manager.bench_store = store  # lives as long as the manager
    return manager


def await_replicas(place: Path, options: TorchftOptions) -> None:
    """All replicas send heartbeats before one begins, so none trains alone at the start."""
    (place / f"ready-{options.number}").touch()
    while any(not (place / f"ready-{number}").exists() for number in range(options.replicas)):
        time.sleep(0.01)


def main() -> None:
    """Train until the bench ends this process."""
    steps_file, options = Path(sys.argv[1]), TorchftOptions(**json.loads(sys.argv[2]))
    torchft = importlib.import_module("torchft")
    training, recorder = TinyTraining(), StepRecorder(steps_file)
    manager = make_manager(torchft, training, options)
    model = torchft.DistributedDataParallel(manager, training.model)
    optimizer = torchft.Optimizer(manager, training.optimizer)
    await_replicas(steps_file.parent, options)
    while True:
        step = manager.current_step()
        optimizer.zero_grad()  # asks for the quorum
        rank = manager.participating_rank()
        loss = training.compute_gradients(model, step, rank if rank is not None else 0)
        optimizer.step()  # only if all replicas' gradients arrived
        if manager.current_step() > step:
            of_spare = rank is None
            world = manager.num_participants()
            recorder.record_step(step, -1 if of_spare else rank, world, manager._quorum_id, loss)  # noqa: SLF001 - no public name


if __name__ == "__main__":
    main()

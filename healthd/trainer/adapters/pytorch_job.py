"""All of it in two calls, for a training script that has no process group yet.

    with guarded_job() as job:
        state = TrainingState(model, optimizer, sampler=sampler)
        with job.checkpoints("/shared/run-7", state) as checkpoints:
            for step in range(checkpoints.load_latest(), steps):
                with job.guard.step(step) as s:
                    train(step)
                    checkpoints.save_if_due(step, s)

`examples/train_gpt.py` is the whole thing. The parts can be had one by one: `process_group`, `pytorch_checkpoint`, `interval`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from healthd.trainer.adapters.process_group import SharedSettings, run_on_every_rank, shared_by_group
from healthd.trainer.adapters.pytorch_checkpoint_schedule import RUN_ID, PacedCheckpoints, StepCopies
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.agreement import Store
from healthd.trainer.beacons.rank_environment import read_environment
from healthd.trainer.beacons.rank_placement import page_name, read_rack
from healthd.trainer.checkpoint_storage.copy_pace import choose_copy_pace
from healthd.trainer.checkpoint_storage.state_copies import (
    choose_copy_distance,
    delete_stale_copies,
    prepare_private_directory,
)
from healthd.trainer.exchange_limits import ExchangeLimits, GenerationStore
from healthd.trainer.guard import Guard
from healthd.trainer.interval import Bounds, CheckpointInterval
from healthd.trainer.rendezvous_client import RendezvousClient

COPIES = "/dev/shm/gpu-healthd-copies"  # noqa: S108 - memory is the point; `prepare_private_directory` refuses a folder of others
_log = logging.getLogger("healthd.trainer")
_ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


class GuardedJob(NamedTuple):
    """One rank of a job, under guard; `device` is this rank's GPU, or the CPU."""

    guard: Guard
    rank: int
    world: int
    device: torch.device
    shared: SharedSettings
    rendezvous: RendezvousClient | None = None  # with a launcher that replaces ranks
    generation: int = 0  # of the process group
    copies_used: set[Path] | None = None  # folders of copies in memory that this process has used
    newcomer: bool = False  # this process was in no earlier generation, but others were
    limits: ExchangeLimits = ExchangeLimits()  # of what the ranks of this generation do together

    def checkpoints(
        self,
        root: str | os.PathLike[str],
        state: TrainingState,
        *,
        bounds: Bounds | None = None,
        keep: int = 3,
    ) -> PacedCheckpoints:
        """Checkpoints of `state` that are saved as often as pays, and at once when an order says so. All ranks together.

        Args:
            root: a directory that every rank sees and no other job writes to.
            state: all that is to come back.
            bounds: of the interval.
            keep: complete checkpoints to retain.
        """
        store, environ, nodes = self._agreeing("interval"), self.shared.environ, self.shared.nodes
        interval = CheckpointInterval.from_env(store=store, nodes=nodes, bounds=bounds, environ=environ)
        copies = None if self.rendezvous is None else self._copies(Path(root), state)
        return PacedCheckpoints(self.guard, interval, root, state, keep=keep, copies=copies, limits=self.limits)

    def _agreeing(self, name: str) -> Store | None:
        """Where the ranks agree on one thing; whoever waits there for a lost rank is free once it is replaced."""
        if self.shared.store is None:
            return None
        store, rendezvous, number = dist.PrefixStore(name, self.shared.store), self.rendezvous, self.generation
        return store if rendezvous is None else GenerationStore(store, lambda: rendezvous.is_over(number))

    def _copies(self, root: Path, state: TrainingState) -> StepCopies | None:
        """Copies in memory; None where no rank is on another node, and none will come."""
        environ = self.shared.environ
        per_node = int(environ.get("LOCAL_WORLD_SIZE", "1"))
        if self.rendezvous is None or (self.world <= per_node and not self.rendezvous.elastic):
            return None

        def prepare() -> tuple[str, str]:
            prepare_private_directory(job_folder(environ).parent)
            return run_id(root) if self.rank == 0 else "", read_rack(environ)

        said = run_on_every_rank(prepare)
        run = job_folder(environ) / said[0][0]
        folder = run / read_environment(environ).place.node
        if self.generation == 0:  # a recovery does not wait for it
            for stale in delete_stale_copies(run.parent.parent, but=run):
                _log.warning("%s: deleted; these state copies in memory were older than a day", stale)
        if self.copies_used is not None:
            self.copies_used.add(folder)
        distance = choose_copy_distance([rack for _, rack in said], per_node) if self.world > per_node else 0
        copies = PeerCopies(
            folder,
            state,
            distance=distance,
            elastic=self.rendezvous.elastic,
            newcomer=self.newcomer,
            limits=self.limits,
        )
        pace = choose_copy_pace(self._agreeing("copies"), self.shared.nodes, environ)
        return StepCopies(copies, self.rendezvous, self.generation, pace)


@contextmanager
def guarded_job() -> Iterator[GuardedJob]:
    """Join the process group that the launcher's variables describe (without them: a job of one rank), under guard.

    Raises:
        Leave: at the end of a step in which all ranks saved because of an order; let it pass.
        ValueError: a variable that cannot be; names it.
    """
    if "RANK" not in os.environ:
        os.environ.update(_ALONE)
    device = device_of_this_rank()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    shared = shared_by_group()
    with Guard.from_env(store=shared.store, environ=shared.environ) as guard:
        yield GuardedJob(guard, dist.get_rank(), dist.get_world_size(), device, shared)
    dist.destroy_process_group()


def job_folder(environ: Mapping[str, str]) -> Path:
    """Where the copies in memory of this user's job lie, below it by run and by node."""
    return Path(f"{COPIES}-{os.getuid()}", page_name(read_environment(environ).place.job, 0, 0).partition(".")[0])


def run_id(root: Path) -> str:
    """The name of the run whose checkpoints lie in `root`; made where there is none.

    Copies in memory belong to one run: with another directory, or a new one of the same name, they are not loaded.

    Raises:
        OSError: the file system says no.
    """
    file = root / RUN_ID
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), file.open("x") as new:
        new.write(secrets.token_hex(8))
    found = file.read_text().strip()
    if not (found.isalnum() and found.isascii()):
        raise OSError(f"{file}: holds no name of a run; delete it")
    return found


def device_of_this_rank() -> torch.device:
    """This rank's GPU, which is made the current one; or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device

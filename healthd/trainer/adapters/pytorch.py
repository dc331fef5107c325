"""PyTorch: what the guard needs of it, and checkpoints of a whole training state through torch.distributed.checkpoint."""

from __future__ import annotations

import datetime as dt
import logging
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from healthd.trainer.checkpoint import Checkpoint, CheckpointError, Checkpoints, seal

_log = logging.getLogger("healthd.trainer")
T = TypeVar("T")


class PyTorch:
    """The guard's `Framework`."""

    def synchronize(self) -> None:
        """Wait for this rank's GPU; on a CPU a collective is complete when the backward pass returns."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def abort(self) -> None:
        """Abort every communicator, stuck or not."""
        if dist.is_available() and dist.is_initialized():
            dist.distributed_c10d._abort_process_group()  # noqa: SLF001 - torch has no public name for it

    def teardown(self) -> None:
        """Destroy every process group; all ranks do so at the same step."""
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


class TrainingCheckpoints:
    """Save and load model, optimizer and this rank's random generators. All ranks call each method together.

    Traffic between the ranks runs over a gloo group of its own with a deadline: a peer that dies while saving makes
    the others fail within it, and the checkpoint before stays the latest.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        keep: int = 3,
        timeout_seconds: float = 120.0,
    ) -> None:
        """Call after the process group exists.

        Args:
            root: a directory that every rank sees.
            model: plain or wrapped (DDP, FSDP2).
            optimizer: of that model.
            keep: complete checkpoints to retain.
            timeout_seconds: how long one exchange between the ranks may take while saving or loading.
        """
        self._checkpoints = Checkpoints(root, keep)
        self._model, self._optimizer = model, optimizer
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=dt.timedelta(seconds=timeout_seconds))

    def save(self, step: int) -> str:
        """Save the state after step `step`.

        Returns:
            The path of the complete checkpoint, the same on every rank.

        Raises:
            CheckpointError: it could not be completed; nothing that was complete before is touched.
        """
        directory = Path(self._from_first(lambda: str(self._checkpoints.open(step))))
        try:
            writer = dcp.FileSystemWriter(directory, sync_files=True)
            dcp.save(self._state(), storage_writer=writer, process_group=self._group)
            mine = sorted(path.name for path in directory.glob(f"__{self._rank}_*"))
            parts: list[dict[str, Any] | None] = [None] * self._world
            sealed = seal(directory, [*mine, ".metadata"] if self._rank == 0 else mine)
            dist.all_gather_object(parts, sealed, group=self._group)
        except CheckpointError:
            raise
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"{directory}: {error}") from error
        files = {name: entry for part in parts if part for name, entry in part.items()}
        return self._from_first(lambda: str(self._checkpoints.complete(step, self._world, files)))

    def load_latest(self) -> int:
        """Load the newest checkpoint that verifies.

        Returns:
            The step to begin with: 0 where there is no checkpoint.

        Raises:
            CheckpointError: it verifies but cannot be loaded into this model.
        """
        found: Checkpoint | None = self._from_first(self._checkpoints.latest)
        if found is None:
            return 0
        if found.manifest.world != self._world:
            text = "%s was saved by %d ranks, this job has %d: random generators start afresh"
            _log.warning(text, found.path, found.manifest.world, self._world)
        state = self._state(with_generators=found.manifest.world == self._world)
        try:
            dcp.load(state, storage_reader=dcp.FileSystemReader(found.path), process_group=self._group)
            set_state_dict(
                self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
            )
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"{found.path}: does not fit this model: {error}") from error
        if "generators" in state:
            _set_generators(state["generators"][str(self._rank)])
        return found.manifest.step + 1

    def _state(self, *, with_generators: bool = True) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer}
        if with_generators:
            state["generators"] = {str(self._rank): _generators()}
        return state

    def _from_first(self, deed: Callable[[], T]) -> T:
        """Rank 0 does it, every rank gets the result, or the same error."""
        box: list[Any] = [None, None]
        if self._rank == 0:
            try:
                box = [deed(), None]
            except (OSError, CheckpointError) as error:
                box = [None, str(error)]
        try:
            dist.broadcast_object_list(box, src=0, group=self._group)
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"{self._checkpoints.root}: a rank is gone: {error}") from error
        if box[1] is not None:
            raise CheckpointError(box[1])
        result: T = box[0]
        return result


def _generators() -> dict[str, torch.Tensor]:
    """This rank's random generators as tensors of fixed size, which is what a checkpoint can load in place."""
    version, words, gauss = random.getstate()
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([math.nan if gauss is None else gauss], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_generators(states: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(states["torch"])
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].item()
    random.setstate((version, tuple(words), None if math.isnan(gauss) else gauss))
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])

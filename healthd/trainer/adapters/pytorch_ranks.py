"""How the ranks talk while they save and load: over a gloo group of their own, with a deadline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from healthd.trainer.checkpoint_files import CheckpointError

T = TypeVar("T")


class Ranks:
    """A channel beside training's: a peer that dies makes the others fail within the deadline, and never hang."""

    def __init__(self, timeout_seconds: float) -> None:
        """All ranks make one together. Args: `timeout_seconds`: how long one exchange may take."""
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(backend="gloo", timeout=dt.timedelta(seconds=timeout_seconds))

    def from_first(self, deed: Callable[[], T]) -> T:
        """Rank 0 does it, every rank gets the result.

        Raises:
            CheckpointError: rank 0's CheckpointError or OSError, on every rank; or a rank is gone.
        """
        box: list[Any] = [None, None]
        if self.rank == 0:
            box = _outcome(deed)
        try:
            dist.broadcast_object_list(box, src=0, group=self.group)
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"a rank is gone: {error}") from error
        if box[1] is not None:
            raise CheckpointError(box[1])
        result: T = box[0]
        return result

    def from_each(self, deed: Callable[[], T]) -> tuple[list[T], list[str]]:
        """Every rank does it, every rank gets all results by rank, and what went wrong.

        Raises:
            CheckpointError: a rank is gone.
        """
        boxes: list[Any] = [None] * self.world
        try:
            dist.all_gather_object(boxes, _outcome(deed), group=self.group)
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"a rank is gone: {error}") from error
        return [box[0] for box in boxes], [box[1] for box in boxes if box[1] is not None]


def _outcome(deed: Callable[[], T]) -> list[Any]:
    try:
        return [deed(), None]
    except (OSError, CheckpointError) as error:
        return [None, str(error)]

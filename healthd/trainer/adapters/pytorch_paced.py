"""Checkpoints at the pace that pays: behind training's back as often as the interval says, at once when an order wants one."""

from __future__ import annotations

import logging
import os

from healthd.trainer.adapters.pytorch_checkpoint import TrainingCheckpoints
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.checkpoint_files import CheckpointError
from healthd.trainer.guard import Guard, Step
from healthd.trainer.interval import CheckpointInterval

_log = logging.getLogger("healthd.trainer")


class PacedCheckpoints(TrainingCheckpoints):
    """`TrainingCheckpoints` that know when.

    An abort gives the save under way a few seconds to become complete; an order to go back is followed by `go_back`.
    """

    def __init__(
        self,
        guard: Guard,
        interval: CheckpointInterval,
        root: str | os.PathLike[str],
        state: TrainingState,
        *,
        keep: int = 3,
    ) -> None:
        """All ranks together. Args: `root`, `state`, `keep`: as `TrainingCheckpoints` has them."""
        super().__init__(root, state, keep=keep)
        self._interval = interval
        guard.on_abort(self.flush)
        guard.on_revert(self.go_back)

    def save_if_due(self, step: int, s: Step, *, also: bool = False) -> None:
        """Call once in every step, when its result stands. All ranks together.

        A save that fails behind training's back is logged, the next one is begun all the same, and training goes on.

        Args:
            step: the step that `s` is.
            s: saves at once where its checkpoint is due, and says so to the guard.
            also: another reason to save after this step, the same on every rank: its last one.

        Raises:
            CheckpointError: the save that an order wants could not be completed; let it pass, the guard knows what to do.
        """
        due = self._interval.due(step)
        if not (due or also or s.checkpoint_due):
            return
        with s.section("checkpoint"), self._interval.saving(step):
            if s.checkpoint_due:
                s.saved(self.save(step))
            else:
                self._begin(step)

    def _begin(self, step: int) -> None:
        before = self.last
        try:
            self.save_async(step)
        except CheckpointError as error:
            _log.error("%s; training goes on", error)
            self.save_async(step)
        if self.last is not None and self.last is not before:
            self._interval.written(self.last.seconds - self.last.stall_seconds)

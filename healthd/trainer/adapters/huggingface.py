# Every argument is named by the framework, whether this callback looks at it or not.
# ruff: noqa: ARG002
"""Hugging Face's `Trainer`: a callback, and the newest checkpoint that all ranks have finished.

trainer = Trainer(..., callbacks=[GuardCallback()])
trainer.train(resume_from_checkpoint=latest_checkpoint(args.output_dir))
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from healthd.trainer.adapters.process_group import guard_of_group, run_on_every_rank
from healthd.trainer.adapters.step_hooks import StepHooks
from healthd.trainer.checkpoint_storage.abandoned_checkpoints import go_back, list_usable_checkpoints, set_aside_marked
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.guard import Guard

COMPLETE = "healthd-complete"
_PREFIX = "checkpoint-"
_log = logging.getLogger("healthd.trainer")


class GuardCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not among what mypy sees
    """One guard step for each optimizer step. When one is due the Trainer saves as it always does, and then we leave."""

    def __init__(self, make_guard: Callable[[], Guard] = guard_of_group) -> None:
        self._make_guard = make_guard
        self._hooks: StepHooks | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The guard begins: the process group exists by now."""
        if args.save_only_model:
            _log.warning("save_only_model: what is saved on an order has no optimizer, training cannot go on from it")
        guard, root = self._make_guard(), Path(args.output_dir)
        if not guard.can_go_back:
            guard.on_revert(
                lambda before_step: _roll_back_checkpoints(root, before_step) if state.is_world_process_zero else None
            )
        self._hooks = StepHooks(guard)  # making it was a collective: by now every rank has loaded
        if state.is_world_process_zero:
            set_aside_marked(root, _list_complete_checkpoints(root))

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Called before the first micro-batch of an optimizer step."""
        if self._hooks is not None:
            self._hooks.begin(state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """After the optimizer: ask the Trainer to save, if it is due, and to do nothing else first."""
        if self._hooks is not None and self._hooks.end():
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """This rank's part is written: wait for the others', mark the checkpoint complete, leave if that was ordered."""
        path = Path(args.output_dir) / f"{_PREFIX}{state.global_step}"
        due = self._hooks is not None and self._hooks.due
        if dist.is_available() and dist.is_initialized():
            dist.barrier()
        try:
            run_on_every_rank(lambda: (path / COMPLETE).touch() if args.should_save else None)
        except (
            OSError,
            CheckpointError,
        ) as error:  # rotated away already, or the disk is full: the one before stays the newest
            _log.warning("%s: cannot be marked complete: %s", path, error)
            if due and self._hooks is not None:
                self._hooks.failed(error)
        else:
            if due and self._hooks is not None:
                self._hooks.saved(path)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The last step is trained."""
        if self._hooks is not None:
            self._hooks.finish()
            self._hooks = None


def latest_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint that every rank had finished; None where there is nothing to resume from.

    Where no checkpoint carries our mark (they are older than the callback) it is the newest, as transformers sees it. After
    an order to go back it is the newest from before that step.

    Raises:
        CheckpointError: from where to go back cannot be read.
    """
    root = Path(output_dir)
    complete = _list_complete_checkpoints(root)
    if complete:
        return next((str(path) for path in reversed(list_usable_checkpoints(root, complete))), None)
    found: str | None = get_last_checkpoint(str(root)) if root.is_dir() else None
    return found


def _list_complete_checkpoints(root: Path) -> dict[Path, int]:
    """The checkpoints with our mark, and how many steps each holds."""
    paths = [path.parent for path in root.glob(f"{_PREFIX}*/{COMPLETE}")]
    return {path: int(digits) for path in paths if (digits := path.name[len(_PREFIX) :]).isascii() and digits.isdigit()}


def _roll_back_checkpoints(root: Path, before_step: int) -> None:
    go_back(root, _list_complete_checkpoints(root), before_step)

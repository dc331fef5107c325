"""DeepSpeed: an engine under guard, that saves through the engine's own checkpoints, ZeRO's shards included.

engine, *_ = deepspeed.initialize(...)
with GuardedEngine(engine, "checkpoints") as engine:
    engine.load_latest()
    for batch in ...:
        engine.backward(engine(batch))
        engine.step()
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist

from healthd.trainer.adapters.process_group import guard_of_group, run_on_every_rank
from healthd.trainer.adapters.step_hooks import StepHooks
from healthd.trainer.checkpoint_storage.abandoned_checkpoints import (
    go_back,
    list_usable_checkpoints,
    read_mark,
    set_aside_marked,
)
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.guard import Guard
from vocabulary.atomic_file import replace_file

COMPLETE = "healthd-complete"
_PREFIX = "global_step"
LATEST = "latest"  # DeepSpeed's own name for the file that says which checkpoint to load


class GuardedEngine:
    """Stands for the engine: whatever is not here is the engine's own.

    One guard step for each optimizer step: it begins with the first forward pass of an accumulation window, and ends
    with the `step` that closes the window.
    """

    def __init__(
        self,
        engine: Any,
        directory: str | os.PathLike[str],
        *,
        client_state: Callable[[], dict[str, Any]] = dict,
        make_guard: Callable[[], Guard] = guard_of_group,
    ) -> None:
        """Wrap it.

        Args:
            engine: what `deepspeed.initialize` gave; not a pipeline engine, whose `train_batch` is a loop of its own.
            directory: for checkpoints; all ranks see it.
            client_state: what else to save, asked for on every rank; rank 0's is kept.
            make_guard: called at `with`.
        """
        self._engine = engine
        self._directory = Path(directory)
        self._client_state = client_state
        self._make_guard = make_guard
        self._hooks: StepHooks | None = None
        self._next = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def __enter__(self) -> GuardedEngine:  # noqa: PYI034 - Self is Python 3.11's
        guard = self._make_guard()
        if not guard.can_go_back:
            guard.on_revert(self._go_back)
        self._hooks = StepHooks(guard)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._hooks is not None:
            self._hooks.finish(error)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The engine's forward pass."""
        if self._hooks is not None and not self._hooks.inside and self._engine.training:
            self._next = max(self._next, int(self._engine.global_steps))
            self._hooks.begin(self._next)
            self._next += 1
        return self._engine(*args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> None:
        """The engine's step; if a checkpoint is due after it, the engine saves, and we leave.

        Raises:
            Leave: as ordered.
        """
        closes = self._engine.is_gradient_accumulation_boundary()
        self._engine.step(*args, **kwargs)
        if closes and self._hooks is not None and self._hooks.end():
            try:
                path = self.save()
            except Exception as error:
                self._hooks.failed(error)
                raise
            self._hooks.saved(path)

    def save(self) -> str:
        """A checkpoint of now. All ranks call it.

        Returns:
            Its path: complete, and named by DeepSpeed's `latest`, which changes only when every rank's part is written.

        Raises:
            Exception: it went wrong, here or on another rank.
        """
        tag = f"{_PREFIX}{self._engine.global_steps}"
        directory, state = str(self._directory), self._client_state()
        run_on_every_rank(
            lambda: self._engine.save_checkpoint(directory, tag=tag, client_state=state, save_latest=False)
        )
        run_on_every_rank(lambda: self._complete(tag) if dist.get_rank() == 0 else None)
        return str(self._directory / tag)

    def _complete(self, tag: str) -> None:
        (self._directory / tag / COMPLETE).touch()
        self._name_latest(tag)

    def _name_latest(self, tag: str) -> None:
        """In one go, and on disk."""
        replace_file(self._directory / LATEST, tag.encode(), sync_content=True, sync_name=True)

    def _go_back(self, before_step: int) -> None:
        """Rank 0 marks what is too new: the next `load_latest` sets it aside."""
        if dist.get_rank() == 0:
            go_back(self._directory, _list_complete_checkpoints(self._directory), before_step)

    def load_latest(self) -> dict[str, Any] | None:
        """Load the newest complete checkpoint. All ranks call it, before the first step.

        Returns:
            Its client state; None where there is no checkpoint.

        Raises:
            CheckpointError: after an order to go back: nothing to go back to, or from where cannot be read.
        """
        found, *_ = run_on_every_rank(lambda: self._found() if dist.get_rank() == 0 else False)
        if not found:  # rank 0's word: on a shared file system another rank may see it later
            return None
        _, client_state = self._engine.load_checkpoint(str(self._directory))
        return dict(client_state or {})

    def _found(self) -> bool:
        """Whether there is one to load; after going back it is one from before."""
        if not (self._directory / LATEST).exists():
            return False
        if read_mark(self._directory) is not None:
            complete = _list_complete_checkpoints(self._directory)
            good = list_usable_checkpoints(self._directory, complete)
            if not good:
                raise CheckpointError(
                    f"{self._directory}: none of its checkpoints is from before the step to go back to"
                )
            self._name_latest(good[-1].name)
            set_aside_marked(self._directory, complete)
        return True


def _list_complete_checkpoints(directory: Path) -> dict[Path, int]:
    """The checkpoints that every rank had finished, and how many steps each holds."""
    paths = [path.parent for path in directory.glob(f"{_PREFIX}*/{COMPLETE}")]
    return {path: int(digits) for path in paths if (digits := path.name[len(_PREFIX) :]).isascii() and digits.isdigit()}

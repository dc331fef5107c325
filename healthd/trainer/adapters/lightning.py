# Every argument is named by the framework, whether this callback looks at it or not.
# ruff: noqa: ARG002
"""Lightning: a callback that saves through the Trainer's own strategy, and the newest of its checkpoints.

trainer = Trainer(..., callbacks=[GuardCallback("checkpoints")])
trainer.fit(model, data, ckpt_path=latest_checkpoint("checkpoints"))
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from healthd.trainer.adapters.process_group import guard_of_group, run_on_every_rank
from healthd.trainer.adapters.step_hooks import StepHooks
from healthd.trainer.guard import Guard

_PATTERN = "step-*.ckpt"


class GuardCallback(Callback):  # type: ignore[misc]  # lightning is not among what mypy sees
    """One guard step for each optimizer step, however many batches it accumulates."""

    def __init__(self, directory: str | os.PathLike[str], make_guard: Callable[[], Guard] = guard_of_group) -> None:
        """Args: `directory`: which all ranks see; `make_guard`: called once the process group exists."""
        self._directory = Path(directory)
        self._make_guard = make_guard
        self._hooks: StepHooks | None = None
        self._next = 0
        self._steps_before = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The guard begins: the process group exists, a checkpoint is loaded."""
        _release_sigterm()
        self._hooks = StepHooks(self._make_guard())
        self._next = trainer.global_step

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Opens a step, unless this batch continues one."""
        if self._hooks is not None and not self._hooks.inside:
            self._hooks.begin(self._next)
            self._next += 1  # not global_step: that counts each optimizer, and our steps go up by one
            self._steps_before = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Closes the step if an optimizer has stepped, and saves if that is due."""
        if self._hooks is not None and trainer.global_step > self._steps_before and self._hooks.end():
            try:
                path = self._save(trainer)
            except Exception as error:
                self._hooks.failed(error)
                raise
            self._hooks.saved(path)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last step is trained."""
        self._finish(None)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Called on any exception, also on our own leave."""
        self._finish(exception)

    def _finish(self, error: BaseException | None) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.finish(error)

    def _save(self, trainer: Trainer) -> Path:
        """Aside first, then renamed: what has its final name is complete."""
        final = self._directory / f"step-{trainer.global_step:09d}.ckpt"
        aside = self._directory / f".{final.name}.tmp"
        first = trainer.is_global_zero
        run_on_every_rank(lambda: self._clear(aside) if first else None)
        run_on_every_rank(lambda: trainer.save_checkpoint(aside))
        run_on_every_rank(lambda: _replace_checkpoint(aside, final) if first else None)
        return final

    def _clear(self, aside: Path) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        _remove_checkpoint(aside)


def latest_checkpoint(directory: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint that the callback has completed; None where there is none."""
    found = [path for path in Path(directory).glob(_PATTERN) if _parse_checkpoint_step(path) is not None]
    return str(max(found, key=lambda path: _parse_checkpoint_step(path) or 0)) if found else None


def _release_sigterm() -> None:
    """Lightning's handler ends training without a checkpoint; the guard's makes an order of the signal.

    Lightning puts back what was there before it when it is done.
    """
    ours = threading.current_thread() is threading.main_thread()
    if ours and type(signal.getsignal(signal.SIGTERM)).__module__.startswith("lightning."):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _parse_checkpoint_step(path: Path) -> int | None:
    digits = path.name.removeprefix("step-").removesuffix(".ckpt")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _replace_checkpoint(aside: Path, final: Path) -> None:
    """One that is there already holds the same step; a file is replaced in one go."""
    if final.is_dir():
        _remove_checkpoint(final)
    aside.replace(final)


def _remove_checkpoint(path: Path) -> None:
    """A file, or the directory that a sharded strategy makes."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

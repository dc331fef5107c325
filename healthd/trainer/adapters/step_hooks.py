"""The guard for frameworks that own the loop and call us at the beginning and the end of each step.

Only the order of calls differs from `with guard.step(n) as s:`. No framework is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from healthd.trainer.exit_codes import Leave
from healthd.trainer.guard import Guard
from healthd.trainer.training_step import TrainingStep


class StepHooks:
    """One guard, entered now, whose steps are opened and closed by calls. Every method is called by all ranks."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard.__enter__()
        self._step: TrainingStep | None = None

    @property
    def inside(self) -> bool:
        """Whether a step has begun and has not ended."""
        return self._step is not None

    @property
    def due(self) -> bool:
        """Whether this very step must end with a checkpoint."""
        return self._step is not None and self._step.checkpoint_due

    def begin(self, step: int) -> None:
        """Step `step` begins. All ranks make as many; each holds a collective of all ranks.

        Raises:
            Leave: the step before was to be saved and was not, or the ranks have missed an agreed step.
        """
        if self._step is not None:
            self._close(None)
        with self._leaving():
            self._step = self._guard.step(step).__enter__()

    def end(self) -> bool:
        """The step is trained.

        Returns:
            Whether it must be saved now; then it stays open until `saved` or `failed`.
        """
        if self.due:
            return True
        if self._step is not None:
            self._close(None)
        return False

    def saved(self, path: str | os.PathLike[str]) -> None:
        """A checkpoint of the open step is complete at `path`, on every rank's part.

        Raises:
            Leave: it was due; the process ends with the code of `exits`.
        """
        if self._step is not None:
            self._step.saved(path)
            self._close(None)

    def failed(self, error: BaseException) -> None:
        """The open step ended with `error`.

        Raises:
            Leave: a checkpoint was due and there is none.
        """
        if self._step is not None:
            self._close(error)

    def finish(self, error: BaseException | None = None) -> None:
        """Training has ended, well or with `error`; a `Leave` has let the guard go already.

        Raises:
            Leave: a checkpoint was due and there is none.
        """
        if isinstance(error, Leave):
            return
        if self._step is not None:
            self._close(error)
        self._guard.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    def _close(self, error: BaseException | None) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        with self._leaving():
            step.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """What `with guard:` would do when a Leave comes by: tear down, acknowledge, start the deadline."""
        try:
            yield
        except Leave as leave:
            self._step = None
            self._guard.__exit__(Leave, leave, leave.__traceback__)
            raise

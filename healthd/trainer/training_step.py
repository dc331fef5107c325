"""One training step, as the loop uses it inside `with guard.step(step) as s:`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import SupportsFloat

from healthd.trainer.step_measurements import StepMeasurements


class TrainingStep:
    """One guarded training step; reused from step to step.

    `checkpoint_due`: every rank saves in this step, and it is the last one. `eject`: so it is, because of this rank's
    own node, which the job will not use again. `swap`: it is the last step of this process group only: spares replace
    the leaving ranks, and the state need only be in the nodes' memory.
    """

    checkpoint_due = False
    eject = False
    swap = False

    def __init__(
        self,
        measures: StepMeasurements,
        *,
        end: Callable[[], None],
        end_agreed: Callable[[BaseException | None], None],
        saved: Callable[[str], None],
    ) -> None:
        """Called by the guard, with callbacks for the end of a step, of an agreed step, and for a completed save."""
        self._end = end
        self._end_agreed = end_agreed
        self._saved = saved
        self._measures = measures
        self._sections = measures.sections
        self._writer = measures.writer

    def section(self, name: str) -> AbstractContextManager[None]:
        """Time a part of the step: `with s.section("forward"):`.

        The names are data, forward, backward, communication, optimizer, checkpoint and other. Sections may be nested:
        the inner one's time does not count for the outer one. On a GPU this is GPU time, which is read some steps
        later. Cheap, and never raises.
        """
        try:
            return self._sections[name]
        except (KeyError, TypeError):
            return self._measures.unknown(name)

    def report(
        self,
        *,
        loss: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
        tokens: SupportsFloat | None = None,
    ) -> None:
        """Report values of this step: this rank's loss, gradient norm, and token count.

        Scalars on a GPU are copied now and read some steps later, without waiting. A value that is not a number is
        ignored, with one warning.
        """
        self._measures.report(loss, grad_norm, tokens)

    def saved(self, path: str | os.PathLike[str]) -> None:
        """Report that a checkpoint with this step's result is complete at `path`."""
        self._saved(os.fspath(path))

    def __enter__(self) -> TrainingStep:  # noqa: PYI034 - Self is Python 3.11's
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            if self._writer.touched:
                self._measures.end()
            else:
                self._end()
        elif self._writer.touched:
            self._measures.reset()
        if self.checkpoint_due:
            self._end_agreed(error)

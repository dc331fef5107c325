"""One training step, as the loop sees it inside `with guard.step(step) as s:`."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import SupportsFloat

from healthd.trainer.step_measurements import StepMeasurements, TimedSection


class TrainingStep:
    """One training step under guard; reused from step to step.

    `checkpoint_due`: every rank saves in this very step, and it is the last one. `eject`: so it is, and because of
    this rank's own node, to which the job does not come back. `swap`: so it is, but only of this process group: spares
    take the places of the ranks that must go, and the state need only be in the nodes' memory.
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
        """Made by the guard, which is called back at the end of a step, of an agreed one, and when it is saved."""
        self._end = end
        self._end_agreed = end_agreed
        self._saved = saved
        self._measures = measures
        self._sections = measures.sections

    def section(self, name: str) -> TimedSection:
        """Time a part of the step: `with s.section("forward"):`.

        There are data, forward, backward, communication, optimizer, checkpoint and other. Sections may stand in each
        other: the inner one's time is not the outer one's. On a GPU it is the GPU's time, which is read back some steps
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
        """Tell numbers of this step: this rank's loss, gradient norm, and tokens (a count) it trained on.

        Scalars on a GPU are taken as they are now, and read some steps later; nothing waits for them. What is no number is
        not reported, with one warning.
        """
        self._measures.report(loss, grad_norm, tokens)

    def saved(self, path: str | os.PathLike[str]) -> None:
        """A checkpoint that holds this step's result is complete at `path`."""
        self._saved(os.fspath(path))

    def __enter__(self) -> TrainingStep:  # noqa: PYI034 - Self is Python 3.11's
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            if self._measures.touched:
                self._measures.end()
            else:
                self._end()
        elif self._measures.touched:
            self._measures.reset()
        if self.checkpoint_due:
            self._end_agreed(error)

"""Checkpoints at the pace that pays: behind training's back as often as the interval says, at once when an order wants one."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from healthd.trainer.adapters.pytorch_checkpoint import TrainingCheckpoints
from healthd.trainer.adapters.pytorch_peers import PeerCopies
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.checkpoint_files import CheckpointError
from healthd.trainer.guard import Guard, Step
from healthd.trainer.interval import CheckpointInterval
from healthd.trainer.rendezvous import Rendezvous

RUN_ID = "run-id"  # beside the checkpoints: the name of the run to which copies in memory belong
_log = logging.getLogger("healthd.trainer")


class StepCopies:
    """Copies of the state in the nodes' memory after every step, for a job whose ranks can be replaced.

    A step counts as done when its copies are held: whatever fails later, the job goes on after it.
    """

    def __init__(self, copies: PeerCopies, rendezvous: Rendezvous, generation: int) -> None:
        """Args: `copies`: of the state; `rendezvous`: is told of the first step of this `generation`."""
        self.copies = copies
        self._rendezvous, self._generation = rendezvous, generation
        self._source = ""
        self._advanced = False

    def note_loaded(self, begin: int) -> None:
        """Remember where the state before step `begin` came from."""
        self._source = "the nodes' memory" if self.copies.loaded else "a checkpoint" if begin else "the beginning"
        self._rendezvous.send(
            "loaded", generation=self._generation, begin=begin, finished=max(self._rendezvous.finished, begin - 1)
        )

    def save(self, step: int) -> str:
        """Hold the state after step `step`; the directory that holds it.

        Raises:
            CheckpointError: a rank is gone, or memory is short.
        """
        self.copies.save(step)
        held = self.copies.wait()
        self._rendezvous.finished = step
        if not self._advanced:
            self._advanced = True
            facts = {"step": step, "source": self._source, "fixed": self.copies.why_fixed}
            self._rendezvous.send("advanced", generation=self._generation, **facts)
        return held


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
        copies: StepCopies | None = None,
    ) -> None:
        """All ranks together. Args: `root`, `state`, `keep`: as `TrainingCheckpoints` has them; `copies`: in memory, after each step."""
        super().__init__(root, state, keep=keep)
        self._run_id = Path(root) / RUN_ID
        self._interval = interval
        self._step_copies = copies
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
        if self._step_copies is not None:
            held = self._hold(step, s)
            if s.checkpoint_due and s.swap:
                s.saved(held)
                return
        due = self._interval.due(step)
        if not (due or also or s.checkpoint_due):
            return
        with s.section("checkpoint"), self._interval.saving(step):
            if s.checkpoint_due:
                s.saved(self.save(step))
            else:
                self._begin(step)

    def go_back(self, before_step: int) -> None:
        """As `TrainingCheckpoints.go_back`. It is another run from then on: a spare node may hold copies of this one, too."""
        super().go_back(before_step)
        if self._step_copies is not None:
            if self._ranks.rank == 0:
                self._run_id.unlink(missing_ok=True)
            shutil.rmtree(self._step_copies.copies.directory, ignore_errors=True)

    def _hold(self, step: int, s: Step) -> str:
        """Copy the state to the nodes' memory. A failure ends nothing: where a rank is gone, training's own collective says so."""
        assert self._step_copies is not None  # noqa: S101 - the caller has looked
        try:
            with s.section("checkpoint"):
                return self._step_copies.save(step)
        except CheckpointError as error:
            if s.checkpoint_due and s.swap:
                raise
            _log.error("%s; training goes on", error)
            return ""

    def load_latest(self, copies: PeerCopies | None = None) -> int:
        """As `TrainingCheckpoints.load_latest`; the copies in memory that belong to these are used without being named."""
        if self._step_copies is None:
            return super().load_latest(copies)
        begin = super().load_latest(self._step_copies.copies)
        self._step_copies.note_loaded(begin)
        return begin

    def close(self) -> None:
        """Wait for what is under way; call before the process group goes.

        Raises:
            CheckpointError: it could not be completed.
        """
        super().close()
        if self._step_copies is not None:
            self._step_copies.copies.close()

    def _begin(self, step: int) -> None:
        before = self.last
        try:
            self.save_async(step)
        except CheckpointError as error:
            _log.error("%s; training goes on", error)
            self.save_async(step)
        if self.last is not None and self.last is not before:
            self._interval.written(self.last.seconds - self.last.stall_seconds)

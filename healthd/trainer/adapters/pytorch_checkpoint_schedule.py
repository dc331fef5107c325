"""Checkpoints at the pace that pays: behind training's back as often as the interval says, at once when an order wants one."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path
from types import TracebackType

from healthd.trainer.adapters.pytorch_checkpoint import TrainingCheckpoints
from healthd.trainer.adapters.pytorch_peer_copies import CopyRefusedError, PeerCopies
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.checkpoint_storage.copy_pace import CopyPace
from healthd.trainer.exchange_limits import ExchangeLimits
from healthd.trainer.guard import Guard, TrainingStep
from healthd.trainer.interval import CheckpointInterval
from healthd.trainer.rendezvous_client import RendezvousClient

NOTICE_SECONDS = 2.0  # for the launcher to see why a rank does not answer
RUN_ID = "run-id"  # beside the checkpoints: the name of the run to which copies in memory belong
_log = logging.getLogger("healthd.trainer")


class StepCopies:
    """Copies of the state in the nodes' memory, for a job whose ranks can be replaced.

    A step counts as finished when the next update begins. Where every step is copied, that waits until all ranks hold the
    copy: whatever fails later, the job continues after this step.
    """

    def __init__(self, copies: PeerCopies, rendezvous: RendezvousClient, generation: int, pace: CopyPace) -> None:
        """Args: `copies`: of the state; `rendezvous`: receives the first step of this `generation`; `pace`: when to copy."""
        self.copies = copies
        self._rendezvous, self._generation, self._pace = rendezvous, generation, pace
        self._source = ""
        self._trained = -1  # the last step whose result stands on this rank
        self._size_reported = False
        hooked = [each for each in copies.optimizers if hasattr(each, "register_step_pre_hook")]
        self._hooks = [each.register_step_pre_hook(lambda *_: self.before_update()) for each in hooked]
        if len(hooked) == len(copies.optimizers):
            copies.overlap_updates()

    def note_loaded(self, begin: int) -> None:
        """Remember where the state before step `begin` came from."""
        self._source = "the nodes' memory" if self.copies.loaded else "a checkpoint" if begin else "the beginning"
        self._rendezvous.send(
            "loaded", generation=self._generation, begin=begin, finished=max(self._rendezvous.finished, begin - 1)
        )

    def note_trained(self, step: int) -> bool:
        """The result of step `step` stands on this rank. Call it once in every step; whether its copy is due."""
        if self._trained < 0:
            self._rendezvous.send("advanced", generation=self._generation, step=step, source=self._source)
        self._report_size()
        self._rendezvous.finished = max(self._rendezvous.finished, self._trained)
        self._trained = step
        return self._pace.interval.due(step)

    def begin(self, step: int) -> None:
        """Copy the state after step `step` behind training's back. A failure ends nothing: it is logged, and the next copy is tried."""
        before = self.copies.last
        for attempt in range(2):  # the first one may say that the copy before failed
            try:
                self.copies.wait()  # not a part of what this one costs: at a slower pace there is nothing to wait for
                with self._pace.interval.saving(step):
                    self.copies.save(step)
                break
            except CheckpointError as error:
                _log.error(
                    "%s; training continues", CopyRefusedError(error, self.copies.directory) if attempt else error
                )
        if self.copies.last is not None and self.copies.last is not before:
            self._pace.interval.written(self.copies.last.seconds - self.copies.last.stall_seconds)

    def hold(self, step: int) -> str:
        """Copy the state after step `step` and wait until all ranks hold it: what an order wants; the directory.

        Raises:
            CheckpointError: a rank is gone, or memory is short.
        """
        with contextlib.suppress(CheckpointError):  # this newer copy makes up for one that failed
            self.copies.wait()
        self.copies.save(step)
        held = self.copies.wait()
        self._report_size()
        self._rendezvous.finished = step
        return held

    def before_update(self) -> None:
        """The optimizer's hook: the step before this update is finished once this returns.

        Raises:
            CopyRefusedError: a rank was lost; its copy of that step is missing, and another process trains the step again.
        """
        self.copies.order_before_update()
        if self._pace.every_step:
            try:
                self.copies.held_before_step()
            except CopyRefusedError as error:
                if error.rank_lost and self._rendezvous.is_replaced(self._generation, NOTICE_SECONDS):
                    raise
                _log.error("%s; training continues without it", error)
        self._report_size()
        self._rendezvous.finished = max(self._rendezvous.finished, self._trained)

    def _report_size(self) -> None:
        """Tell the launcher once whether the job may go on with another number of ranks: the first copy shows it."""
        if not self._size_reported and self.copies.why_fixed is not None:
            self._size_reported = True
            self._rendezvous.send("fixed", generation=self._generation, why=self.copies.why_fixed)

    def release(self) -> None:
        """Let the optimizers go, and the copy under way fail: the process group ends."""
        for hook in self._hooks:
            hook.remove()
        self.copies.abandon()

    def close(self) -> None:
        """Wait for the copy under way. All steps are done by then, so one that fails is only logged."""
        try:
            self.copies.wait()
        except CheckpointError as error:
            _log.error("%s", error)
        self._rendezvous.finished = max(self._rendezvous.finished, self._trained)
        self.release()
        self.copies.close()


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
        limits: ExchangeLimits = ExchangeLimits(),  # noqa: B008 - immutable
    ) -> None:
        """All ranks together. Args: `root`, `state`, `keep`, `limits`: as `TrainingCheckpoints` has them; `copies`: in memory."""
        super().__init__(root, state, keep=keep, limits=limits)
        self._run_id = Path(root) / RUN_ID
        self._interval = interval
        self._step_copies = copies
        guard.on_abort(self.flush)
        guard.on_revert(self.go_back)

    def save_if_due(self, step: int, s: TrainingStep, *, also: bool = False) -> None:
        """Call once in every step, when its result stands. All ranks together.

        A save that fails behind training's back is logged, the next one is begun all the same, and training continues.

        Args:
            step: the step that `s` is.
            s: saves at once where its checkpoint is due, and says so to the guard.
            also: another reason to save after this step, the same on every rank: its last one.

        Raises:
            CheckpointError: the save that an order wants could not be completed; let it pass, the guard knows what to do.
        """
        if self._step_copies is not None and self._copied(self._step_copies, step, s):
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
            self._step_copies.copies.abandon()
            shutil.rmtree(self._step_copies.copies.directory, ignore_errors=True)

    def _copied(self, copies: StepCopies, step: int, s: TrainingStep) -> bool:
        """Copy the state to the nodes' memory where it is due; whether an order wanted it to be there, and no more than that."""
        due = copies.note_trained(step)
        if s.checkpoint_due and s.swap:
            with s.section("checkpoint"):
                s.saved(copies.hold(step))
            return True
        if due:
            with s.section("checkpoint"):
                copies.begin(step)
        return False

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
            self._step_copies.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and self._step_copies is not None:
            self._step_copies.release()

    def _begin(self, step: int) -> None:
        before = self.last
        try:
            self.save_async(step)
        except CheckpointError as error:
            _log.error("%s; training continues", error)
            self.save_async(step)
        if self.last is not None and self.last is not before:
            self._interval.written(self.last.seconds - self.last.stall_seconds)

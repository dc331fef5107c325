"""Checkpoints of a whole training state through torch.distributed.checkpoint: written at once, or behind training's back."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from healthd.trainer.adapters.pytorch_file_reader import METADATA, LateUnpickling, PlainReader
from healthd.trainer.adapters.pytorch_file_writer import MeasuredWriter
from healthd.trainer.adapters.pytorch_host_copy import HostCopy
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.adapters.pytorch_rank_channel import RankChannel
from healthd.trainer.adapters.pytorch_state import TrainingState, list_parameters_with_state
from healthd.trainer.checkpoint import (
    Checkpoint,
    Checkpoints,
    CompletedSave,
    SkippedCheckpoint,
    log_skipped_checkpoint,
    parse_checkpoint_step,
)
from healthd.trainer.checkpoint_storage.background_task import BackgroundTask, ParallelCall
from healthd.trainer.checkpoint_storage.checkpoint_files import (
    CheckpointError,
    FileEntry,
    FileWriter,
    Manifest,
    check_listing,
    verify_checkpoint,
)
from healthd.trainer.checkpoint_storage.checksums import ChecksumUnavailableError
from healthd.trainer.checkpoint_storage.save_rounds import OutcomeUnknownError
from healthd.trainer.exchange_limits import ExchangeLimits
from vocabulary.atomic_file import sync_directory

_NAMED = ("modules", "shared")
_TRANSIENT = (OSError, MemoryError, torch.cuda.OutOfMemoryError)  # say nothing about the checkpoint that was read

_log = logging.getLogger("healthd.trainer")


class TrainingCheckpoints:
    """Save and load a `TrainingState`. All ranks call each method together, and in the same order.

    Traffic between the ranks runs over a gloo group of its own with a deadline: a peer that dies while saving makes
    the others fail within it, and the checkpoint before stays the latest.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        state: TrainingState | torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        keep: int = 3,
        keep_every: int = 0,
        incremental: bool = False,
        limits: ExchangeLimits = ExchangeLimits(),  # noqa: B008 - immutable
    ) -> None:
        """Call after the process group exists.

        Args:
            root: a directory that every rank sees and no other job writes to.
            state: all that is to come back; a model alone, with `optimizer`, brings the random generators along.
            optimizer: of that model; None where `state` is a TrainingState.
            keep: complete checkpoints to retain.
            keep_every: beyond those, retain each one after a multiple of this many finished steps; 0: none.
            incremental: a file per tensor, and a hard link for each whose content is in the checkpoint before; pays
                where most tensors are frozen, costs many small files elsewhere, and wants `keep` of 3 or more.
            limits: how long one exchange between the ranks may take while saving or loading, and what ends it early.
        """
        self._checkpoints = Checkpoints(root, keep, keep_every)
        if not isinstance(state, TrainingState):
            state = TrainingState(state, () if optimizer is None else optimizer)
        self._state = state
        self._incremental = incremental
        self._ranks = RankChannel(limits)
        self._host = HostCopy()
        self._flight: BackgroundTask[CompletedSave] = BackgroundTask("healthd-checkpoint")
        self._sweep: BackgroundTask[None] = BackgroundTask("healthd-retention")
        self.last: CompletedSave | None = None

    def save(self, step: int) -> str:
        """Save the state after step `step` and wait until it is complete: what an order to save needs.

        A save that is under way is waited for; if that fails, this newer one makes up for it, and it is only logged.

        Returns:
            The path of the complete checkpoint, the same on every rank.

        Raises:
            CheckpointError: it could not be completed; nothing that was complete before is touched.
        """
        began = time.monotonic()
        try:
            self.wait()
        except CheckpointError as error:
            _log.error("the save before this one failed: %s", error)
        saved = self._write(step, self._state.collect(), began)
        self.last = saved._replace(stall_seconds=saved.seconds)
        return saved.path

    def save_async(self, step: int) -> None:
        """Copy the state after step `step` to host memory and write it while training continues; one at a time.

        Raises:
            CheckpointError: the save before this one failed, and this one was not begun: call again, or stop.
        """
        began = time.monotonic()
        self.wait()
        staged = self._host.take(self._state.collect())
        stall = time.monotonic() - began
        self._flight.start(lambda: self._write(step, staged, began)._replace(stall_seconds=stall))

    def wait(self) -> str:
        """Wait for the save under way.

        Returns:
            The path of the last complete checkpoint of this run, empty where there is none.

        Raises:
            CheckpointError: the one under way could not be completed.
        """
        self.last = self._flight.wait() or self.last
        return self.last.path if self.last else ""

    def flush(self, seconds: float) -> str | None:
        """Give the save under way so long to become complete: `guard.on_abort(checkpoints.flush)`.

        The state it writes lies in host memory, and its traffic is not training's: it continues while a collective is stuck.

        Returns:
            The path of the checkpoint that was begun last, if it is complete.
        """
        saved = self._flight.look(seconds)
        return saved.path if saved else None

    def go_back(self, before_step: int) -> None:
        """From now on no checkpoint of `before_step` or later is loaded, nor a copy in memory: `guard.on_revert(checkpoints.go_back)`.

        Rank 0 writes that down; the next `load_latest` sets them aside. A save under way may go on, it falls under it too.

        Raises:
            CheckpointError: no complete checkpoint is older.
            OSError: the file system says no.
        """
        if self._ranks.rank == 0:
            self._checkpoints.go_back(before_step)

    @property
    def idle(self) -> bool:
        """No write is under way here; another rank may still be at it."""
        return self._flight.done

    def close(self) -> None:
        """Wait for the save under way; call before the process group goes.

        Raises:
            CheckpointError: it could not be completed.
        """
        try:
            self.wait()
        finally:
            self._flight.close()
            self._sweep.close()

    def __enter__(self) -> TrainingCheckpoints:  # noqa: PYI034 - Self is Python 3.11's
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()

    def load_latest(self, copies: PeerCopies | None = None) -> int:
        """Load the newest checkpoint that verifies. Each rank reads its share to verify it.

        After `go_back` what is too new is set aside first, and forgotten by `copies`.

        Args:
            copies: are loaded instead where they hold a step as new as the newest checkpoint, or newer.

        A checkpoint that is damaged, or does not fit the state, is passed over, and the one before is tried. All ranks agree on that.

        Returns:
            The step to begin with: 0 where there is no checkpoint.

        Raises:
            CheckpointError: there are checkpoints, and none can be loaded; or one cannot be read now (a rank is gone, the
                file system or the memory fails), which says nothing about the checkpoint. The state is undefined then.
        """
        self.wait()
        with self._ranks.together():
            return self._load_latest(copies)

    def _load_latest(self, copies: PeerCopies | None) -> int:
        going_back = self._ranks.from_first(lambda: self._checkpoints.going_back)
        complete = self._ranks.from_first(self._checkpoints.newest_first)
        if going_back:
            if copies is not None:
                copies.forget()
            self._ranks.from_first(self._checkpoints.gone_back)
        if copies is not None and (
            begin := copies.load(newer_than=parse_checkpoint_step(complete[0]) - 1 if complete else -1)
        ):
            return begin
        passed_over: list[SkippedCheckpoint] = []
        for path in complete:
            manifest, why = self._checked(path, lambda: check_listing(path, METADATA))  # noqa: B023 - called at once
            if manifest is not None:
                why = self._load(Checkpoint(path, manifest))
            if not why:
                self._checkpoints.fallen_back(passed_over, path)
                return parse_checkpoint_step(path) + 1
            log_skipped_checkpoint(why)
            passed_over.append(SkippedCheckpoint(path, why))
        self._checkpoints.fallen_back(passed_over, None)
        return 0

    def _checked(self, path: Path, check: Callable[[], Manifest]) -> tuple[Manifest | None, str]:
        """What every rank's check returns, or what is wrong with the files: the same on every rank.

        Raises:
            CheckpointError: a rank lacks a package to verify them with, which is no reason to fall back.
        """

        def share() -> Manifest | str:
            try:
                return check()
            except ChecksumUnavailableError as error:
                return f"{path}: {error}"

        found, errors = self._ranks.from_each(share)
        if lacking := [each for each in found if isinstance(each, str)]:
            raise CheckpointError(lacking[0])
        manifest = found[0]
        return (None, errors[0]) if errors or isinstance(manifest, str) else (manifest, "")

    def _load(self, found: Checkpoint) -> str:
        """Load it, and verify its files meanwhile. Why it cannot be used, the same on every rank; empty where it is loaded.

        What damaged files left in the state's tensors does not stay: an older checkpoint is loaded over it, or loading fails.
        Before all is verified, nothing is unpickled but tensors, and nothing is given to the objects.

        Raises:
            CheckpointError: it cannot be read now. Another attempt may succeed, so this is no reason to fall back.
        """
        verified = _begin_verification(found.path, self._ranks.rank, self._ranks.world)
        tree: dict[str, Any] = {}
        planner = LateUnpickling()
        unread: CheckpointError | None = None
        try:
            why = self._why_unread(found, tree, planner)
        except CheckpointError as error:
            why, unread = "", error
        _, damage = self._checked(found.path, verified)  # first: damage may look like a lack of memory
        if damage:
            return damage
        if unread is not None:
            raise unread
        why = why or self._why_not(planner.unpickle) or self._why_not(lambda: self._state.restore(tree))
        return f"{found.path}: does not fit this state: {why}" if why else ""

    def _why_unread(self, found: Checkpoint, tree: dict[str, Any], planner: LateUnpickling) -> str:
        """Read it into `tree`. Why it does not fit the state, the same on every rank; empty where it does. Raises as `_load`."""
        same_world = found.manifest.world == self._ranks.world
        if not same_world:
            text = "%s was saved by %d ranks, this job has %d: random generators and per-rank state start afresh"
            _log.warning(text, found.path, found.manifest.world, self._ranks.world)
        reader = PlainReader(found.path)

        def prepare() -> None:
            paths = (reader.read_metadata().planner_data or {}).values()
            tree.update(self._state.collect_targets(list_parameters_with_state(paths), with_rank=same_world))
            _require_names(tree, reader)

        try:
            if why := self._why_not(prepare):
                return why
            dcp.load(tree, storage_reader=reader, planner=planner, process_group=self._ranks.group)
        except CheckpointException as error:  # raised on every rank alike, with the failures of all
            causes = [failed[0] if isinstance(failed, tuple) else failed for failed in error.failures.values()]
            if not causes or any(isinstance(cause, _TRANSIENT) for cause in causes):
                raise CheckpointError(f"{found.path}: cannot be read: {_find_root_cause(error)}") from error
            return str(_find_root_cause(error))
        return ""

    def _why_not(self, attempt: Callable[[], None]) -> str:
        """Every rank makes the attempt; why it failed on the first rank where it did, the same on every rank.

        Raises:
            CheckpointError: a rank is gone, or the file system or the memory fails.
        """

        def reason() -> str:
            try:
                attempt()
            except _TRANSIENT:
                raise
            except Exception as error:  # noqa: BLE001 - loading runs code of torch's and of the user's
                return str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
            return ""

        reasons, errors = self._ranks.from_each(reason)
        if errors:
            raise CheckpointError(errors[0])
        return next(filter(None, reasons), "")

    def _write(self, step: int, state: dict[str, Any], began: float) -> CompletedSave:
        files: list[FileWriter] = []
        try:
            path = self._ranks.concluded(
                lambda: self._written(step, state, files), lambda whole: self._complete(step, whole)
            )
        except OutcomeUnknownError as error:
            raise CheckpointError(
                f"step {step}: it is unknown whether the save succeeded until the next load: {error}"
            ) from error
        except (Exception, CheckpointException) as error:  # DCP's own is a BaseException
            text = self._checkpoints.explain(step, _find_root_cause(error))
            if self._ranks.rank == 0:
                self._checkpoints.discard(step)
            raise CheckpointError(text) from error
        if self._ranks.rank == 0 and self._sweep.done:  # deleting may take minutes; no rank waits for it
            self._sweep.wait()
            self._sweep.start(self._checkpoints.sweep)
        seconds = time.monotonic() - began
        return CompletedSave(step, path, 0.0, seconds, files[0].bytes_written, files[0].bytes_linked)

    def _written(self, step: int, state: dict[str, Any], files: list[FileWriter]) -> dict[str, FileEntry]:
        """The files of all ranks, on disk; this rank's are left in `files`."""
        steps, _ = self._ranks.from_each(lambda: step)
        if len(set(steps)) > 1:
            rank = next(rank for rank, each in enumerate(steps) if each != steps[0])
            raise CheckpointError(
                f"rank 0 saves step {steps[0]}, rank {rank} step {steps[rank]}: all save the same one"
            )
        directory = self._ranks.from_first(lambda: self._checkpoints.open(step, sweeping=not self._sweep.done))
        known = self._checkpoints.linkable() if self._incremental else None
        files.append(FileWriter(directory, known, algorithm=self._ranks.algorithm))
        writer = MeasuredWriter(directory, files[0], file_per_tensor=self._incremental)
        dcp.save(state, storage_writer=writer, process_group=self._ranks.group)
        parts, errors = self._ranks.from_each(lambda: _sync_files(files[0]))
        if errors:
            raise CheckpointError(errors[0])
        return {name: entry for part in parts for name, entry in part.items()}

    def _complete(self, step: int, whole: dict[str, FileEntry]) -> str:
        return str(self._checkpoints.complete(step, self._ranks.world, whole))


def _begin_verification(path: Path, part: int, parts: int) -> Callable[[], Manifest]:
    """Verify this share of a checkpoint in a thread. What is returned waits for the result: `verify_checkpoint`'s."""
    found: list[Manifest] = []

    def verify() -> None:
        found.append(verify_checkpoint(path, part=part, parts=parts))

    def wait() -> Manifest:
        end()
        return found[0]

    try:
        end = ParallelCall(verify, "healthd-checkpoint-verification").wait
    except RuntimeError:  # no thread can start
        end = verify
    return wait


def _sync_files(files: FileWriter) -> dict[str, FileEntry]:
    sync_directory(files.directory)
    return files.entries


def _require_names(state: dict[str, Any], reader: Any) -> None:
    """The objects of the state are in the checkpoint; what it holds beyond them is said."""
    keys = [name.split(".") for name in reader.read_metadata().state_dict_metadata]
    saved = {key[1] for key in keys if key[0] in _NAMED}
    asked = {name for part in _NAMED for name in state.get(part, {})}
    if missing := sorted(asked - saved):
        raise CheckpointError(f"holds no {', '.join(missing)}")
    if unused := sorted(saved - asked):
        _log.warning("the checkpoint also contains %s, which this job does not use", ", ".join(unused))


def _find_root_cause(error: BaseException) -> BaseException:
    """What a person needs of it: of many ranks' failures the first, without torch's tracebacks in the text."""
    if isinstance(error, CheckpointException) and error.failures:
        failed = error.failures[min(error.failures)]
        cause: BaseException = failed[0] if isinstance(failed, tuple) else failed
        return cause
    return error

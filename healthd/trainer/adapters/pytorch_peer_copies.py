"""In-memory saving: each rank's state in the host memory of its own node and of a neighbour's, without a disk.

It costs training the copy to host memory, as any save here. Behind its back the copy goes to a file on tmpfs, and around
a ring to the node of the rank `distance` further on. Files on tmpfs outlive the process, so a relaunched job finds them;
the state of a rank whose node is lost comes from its neighbour. A reboot or the loss of two neighbours at once loses
them: this stands beside checkpoints on a disk, and never instead of them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from healthd.trainer.adapters.pytorch_host_copy import (
    CopyStream,
    CudaCopyStream,
    HostCopy,
    PendingCopy,
    is_capturing_graph,
    list_update_storages,
)
from healthd.trainer.adapters.pytorch_rank_channel import RankChannel
from healthd.trainer.adapters.pytorch_replicas import ReplicaDigest, digest_replica, explain_unreplicated
from healthd.trainer.adapters.pytorch_state import TrainingState, list_parameters_with_state
from healthd.trainer.adapters.pytorch_state_transfer import (
    exchange_files,
    fill_state,
    read_state,
    receive_file,
    send_file,
    write_state,
)
from healthd.trainer.checkpoint import CompletedSave
from healthd.trainer.checkpoint_storage.background_task import BackgroundTask
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError, FileEntry
from healthd.trainer.checkpoint_storage.save_rounds import OutcomeUnknownError
from healthd.trainer.checkpoint_storage.state_copies import CopySource, StateCopies, StateCopy, find_newest_step
from healthd.trainer.exchange_limits import ExchangeLimits, RankUnreachableError

T = TypeVar("T")
_log = logging.getLogger("healthd.trainer")


ABANDON_SECONDS = 10.0  # for a copy under way to fail, once its connections are shut down


class CopyRefusedError(CheckpointError):
    """A copy of the state in memory cannot be had. Training may go on without it; `rank_lost`: because a rank is unreachable."""

    def __init__(self, why: CheckpointError, directory: Path) -> None:
        self.rank_lost = isinstance(why.__cause__, RankUnreachableError)
        advice = f"make room in {directory} (df {directory}), or copy less often with HEALTHD_COPY_STEPS"
        super().__init__(f"{why}; until a copy succeeds, a lost rank costs the steps since the last one: {advice}")


class PeerCopies:
    """The newest state of the whole job in the nodes' memory. All ranks call each method together, in the same order."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        state: TrainingState,
        *,
        distance: int | None = None,
        elastic: bool = False,
        newcomer: bool = False,
        limits: ExchangeLimits = ExchangeLimits(),  # noqa: B008 - immutable
    ) -> None:
        """Call after the process group exists.

        Args:
            directory: on tmpfs, of this job alone; needs room for four times a rank's state for each rank of the node.
            state: all that is to come back.
            distance: how many ranks further on a copy goes; None: LOCAL_WORLD_SIZE, which makes it the next node; 0: nowhere.
            elastic: find out whether one copy alone is enough for a job of another number of ranks, and mark those that are.
            newcomer: what this node holds is older than what the others do.
            limits: how long one exchange between the ranks may take, and what ends it early.

        Raises:
            ValueError: a copy would stay where it is: all ranks on one node, or a `distance` once around.
        """
        self._copies = StateCopies(Path(directory).absolute())
        self._state = state
        self._distance = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if distance is None else distance
        self._ranks = RankChannel(limits)
        if self._distance and self._ranks.world > 1 and self._distance % self._ranks.world == 0:
            raise ValueError(f"distance={self._distance}: of {self._ranks.world} ranks that is each one itself")
        self._host = HostCopy()
        self._pending = PendingCopy({})
        self._stream: CopyStream | None = None
        self._overlaps = False
        self._flight: BackgroundTask[CompletedSave] = BackgroundTask("healthd-peer-copy")
        self.last: CompletedSave | None = None
        self.loaded = False  # whether the last load found a step here
        self.why_fixed: str | None = (
            None  # why no copy alone is enough for another number of ranks; None before the first save
        )
        self._trained = None if elastic else ReplicaDigest("the job is not elastic", "")
        self._newcomer = newcomer

    def save(self, step: int) -> None:
        """Copy the state after step `step` to host memory; it goes to the neighbour while training continues.

        Raises:
            CheckpointError: the save before this one failed, and this one was not begun; the last whole one is still held.
        """
        began = time.monotonic()
        self.wait()
        pending = self._pending = self._copy_to_host()
        stall = time.monotonic() - began
        self._flight.start(lambda: self._keep(step, pending, began)._replace(stall_seconds=stall))

    def overlap_updates(self, stream: CopyStream | None = None) -> None:
        """Let training go on while the GPU copies. From now on `order_before_update` is called before each update.

        Args:
            stream: for tests; None: a CUDA stream, where CUDA is in use.
        """
        self._overlaps, self._stream = True, stream

    def order_before_update(self) -> None:
        """Have the update that begins wait for the copy under way, on the GPU."""
        self._pending.order_before_update()
        if is_capturing_graph():  # a replay changes the state without a call of this
            self._overlaps = False

    def _copy_to_host(self) -> PendingCopy:
        tree = self._state.collect()
        if self._overlaps and self._stream is None and torch.cuda.is_initialized():
            self._stream = CudaCopyStream()
        if not self._overlaps or self._stream is None:
            return PendingCopy(self._host.take(tree))
        return self._host.begin(tree, list_update_storages(self._state.optimizers), self._stream)

    def wait(self) -> str:
        """Wait for the save under way.

        Returns:
            The directory, where it holds a whole step of this run; else empty.

        Raises:
            CheckpointError: the one under way could not be completed.
        """
        self.last = self._flight.wait() or self.last
        return self.last.path if self.last else ""

    def held_before_step(self) -> str:
        """Wait until every rank holds the copy under way; only then may the optimizer's next update begin.

        Else a rank that dies could leave the others a step ahead of the newest copy that is whole.

        Returns:
            As `wait` does.

        Raises:
            CopyRefusedError: the copy cannot be had.
        """
        try:
            return self.wait()
        except CheckpointError as error:
            raise CopyRefusedError(error, self.directory) from error

    def abandon(self) -> None:
        """Let the copy under way fail or end, whatever comes of it: the next process group writes to the same files."""
        with contextlib.suppress(Exception):  # what the copy raised
            self._flight.look(ABANDON_SECONDS)

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Those whose state is copied."""
        return self._state.optimizers

    @property
    def directory(self) -> Path:
        """Where this node's are."""
        return self._copies.directory

    def close(self) -> None:
        """Wait for the save under way; the copies stay."""
        try:
            self.wait()
        finally:
            self._flight.close()

    def forget(self) -> None:
        """Delete every copy that these nodes hold; after it none is loaded. What a node holds that is not of this attempt, stays.

        Raises:
            CheckpointError: a rank could not, or is gone.
        """
        self.wait()
        with self._ranks.together():
            self._all(lambda: self._copies.forget(but=-1))

    def load(self, *, newer_than: int = -1) -> int:
        """Load the newest step that the nodes' memories hold whole, taking lost ranks' states from their neighbours.

        Args:
            newer_than: only a newer step than this one is loaded.

        Returns:
            The step to begin with: 0 where there is none to load.

        Raises:
            CheckpointError: it is whole but does not fit this state, which is then undefined; or a rank is gone.
        """
        self.wait()
        with self._ranks.together():
            return self._load(newer_than)

    def _load(self, newer_than: int) -> int:
        sources = self._trusted()
        if not sources or sources[0].copy.step <= newer_than:
            return 0
        try:
            for target, source in enumerate(sources):
                self._bring_home(target, source)
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"{self._copies.directory}: a copy failed: {error}") from error
        self._all(functools.partial(self._restore, sources[self._ranks.rank].copy))
        self.loaded = True
        return sources[0].copy.step + 1

    def _keep(self, step: int, pending: PendingCopy, began: float) -> CompletedSave:
        own: list[FileEntry] = []
        try:
            path = self._ranks.concluded(lambda: self._held(step, pending, own), lambda _: str(self._copies.directory))
        except OutcomeUnknownError as error:
            raise CheckpointError(f"whether step {step} is held in memory is not known: {error}") from error
        except Exception as error:  # torch raises many kinds here
            raise CheckpointError(f"step {step} is not held in memory: {error}") from error
        try:
            self._copies.forget(but=step)
        except OSError as error:
            _log.warning("cannot forget older copies in memory: %s", error)
        return CompletedSave(step, path, 0.0, time.monotonic() - began, own[0].bytes, 0)

    def _held(self, step: int, pending: PendingCopy, own: list[FileEntry]) -> None:
        """When it returns every rank's copies are whole; the size of this rank's is left in `own`."""
        rank, world = self._ranks.rank, self._ranks.world
        aside, peer = self._copies.aside("own", rank), self._copies.aside("peer", rank)
        name = secrets.token_hex(4)
        said = self._all(lambda: (step, name, self._written(pending, aside), self._trained))
        steps, names, entries, alike = zip(*said, strict=True)
        if len(set(steps)) > 1:
            raise CheckpointError(f"the ranks copy different steps: {sorted(set(steps))}")
        self.why_fixed = explain_unreplicated(alike)
        marks = (names[0], not self.why_fixed)
        copies = [
            StateCopy(step, world, each, marks[0], entry.checksum, marks[1]) for each, entry in enumerate(entries)
        ]
        if world > 1 and self._distance:
            came = exchange_files(self._ranks, self._distance, (aside, peer), [entry.bytes for entry in entries])
            before = copies[(rank - self._distance) % world]
            self._all(lambda: self._take_in(peer, came, before))
        self._all(lambda: self._copies.finish(aside, copies[rank]))
        own.append(entries[rank])

    def _written(self, pending: PendingCopy, aside: Path) -> FileEntry:
        tree = pending.wait()
        if self._trained is None:
            self._trained = digest_replica(tree)
        return write_state(tree, aside, self._ranks.algorithm)

    def _all(self, action: Callable[[], T]) -> list[T]:
        """Every rank does it, or every rank raises."""
        results, errors = self._ranks.from_each(action)
        if errors:
            raise CheckpointError(errors[0])
        return results

    def _take_in(self, aside: Path, came: FileEntry | OSError, copy: StateCopy) -> None:
        if isinstance(came, OSError):
            raise came
        if came.checksum != copy.checksum:
            raise CheckpointError(f"rank {copy.rank}'s state arrived with a different checksum")
        self._copies.finish(aside, copy)

    def _trusted(self) -> list[CopySource]:
        """Sources that were read through; a copy that is not what it should be is passed over and said."""
        held = [set(copies) for copies in self._all(lambda: [] if self._newcomer else self._copies.held())]
        while sources := find_newest_step(held, self._ranks.world):
            mine = [source.copy for source in sources if source.holder == self._ranks.rank]
            bad = self._all(functools.partial(self._bad, mine))
            if not any(bad):
                return sources
            for holder, copies in enumerate(bad):
                held[holder] -= copies
        return []

    def _bad(self, copies: list[StateCopy]) -> set[StateCopy]:
        found = set()
        for copy in copies:
            try:
                self._copies.check(copy)
            except CheckpointError as error:
                _log.warning("copy in memory not used: %s", error)
                found.add(copy)
        return found

    def _bring_home(self, target: int, source: CopySource) -> None:
        """Every rank takes part; only the holder and the rank it is for have something to do."""
        rank = self._ranks.rank
        if source.holder == target:
            return
        path = self._copies.path(source.copy)
        size = self._all(lambda: path.stat().st_size if rank == source.holder else 0)[source.holder]
        if rank == source.holder:
            send_file(self._ranks, path, size, target)
        elif rank == target:
            text = "rank %d's state after step %d comes from the memory of rank %d's node"
            _log.warning(text, target, source.copy.step, source.holder)
            aside = self._copies.aside("own", rank)
            came = receive_file(self._ranks, aside, size, source.holder, source.copy.checksum.algorithm)
            self._take_in(aside, came, source.copy)

    def _restore(self, copy: StateCopy) -> None:
        path, own = self._copies.path(copy), (copy.rank, copy.world) == (self._ranks.rank, self._ranks.world)
        try:
            saved = {keys: value for keys, value in read_state(path).items() if own or keys[0] != "ranks"}
            tree = self._state.collect_targets(list_parameters_with_state(saved.keys()), with_rank=own)
            fill_state(tree, saved)
            self._state.restore(tree)
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{path}: does not fit this state: {error!r}") from error

"""How the ranks talk while they save and load: over a gloo group of their own, with a deadline."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from healthd.trainer.adapters.gloo_threads import contain_gloo_threads
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.checkpoint_storage.checksums import choose_algorithm, choose_common_algorithm
from healthd.trainer.checkpoint_storage.save_rounds import RoundOutcome, SaveRounds
from healthd.trainer.exchange_limits import ExchangeLimits, RankUnreachableError, await_all_ranks

T = TypeVar("T")
KNOCK_SECONDS = 5.0
DOUBT_SECONDS = 0.5
_log = logging.getLogger("healthd.trainer")


class RankChannel:
    """A channel beside training's: a peer that dies makes the others fail within the deadline, and never hang.

    What a gloo group's deadline has ended, is closed for good. So after a save or a load that any rank came out of ill, all
    make a new group together, before the next one.
    """

    def __init__(self, limits: ExchangeLimits) -> None:
        """All ranks make one together. Args: `limits`: how long one exchange may take, and connecting.

        Raises:
            CheckpointError: a rank does not come.
        """
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._deadline = dt.timedelta(seconds=limits.seconds)
        self._connecting = dt.timedelta(seconds=limits.connect)
        self._jobs = dist.group.WORLD.get_group_store()
        await_all_ranks(self._jobs, f"healthd-channel-{dist.distributed_c10d._world.group_count}", self.world, limits)  # noqa: SLF001 - the count is the same on all ranks
        self.group: Any = dist.new_group(backend="gloo", timeout=self._connecting)
        self._set_deadline()
        contain_gloo_threads()
        self._broken = False
        said, _ = self.from_each(lambda: (secrets.token_hex(8), choose_algorithm()))
        self._name = f"healthd-{said[0][0]}"
        self.algorithm = choose_common_algorithm(
            [algorithm for _, algorithm in said]
        )  # of checksums; works on every rank
        self._connected = False  # to the store, at some time
        self._rounds = SaveRounds(self._store, self.rank, self.world, limits)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around each save and each load.

        Raises:
            CheckpointError: a rank is not out of the one before, or does not come.
        """
        self._broken, well = False, False
        try:
            if not self._rounds.begin():
                self._connect_anew()
            yield
            well = not self._broken
        finally:
            if not well:
                self._hang_up()
            self._rounds.end(well=well)

    def concluded(self, prepare: Callable[[], T], conclude: Callable[[T], str]) -> str:
        """Every rank prepares; where all could, rank 0 concludes. The outcome is the same on every rank.

        Also on one whose channel broke after it had done its part: it learns the outcome from the job's store.

        Returns:
            What rank 0 concluded.

        Raises:
            CheckpointError: it came to nothing; or what `prepare` raised here.
            RankUnreachableError: that is because of a rank; OutcomeUnknownError: of rank 0, which may have concluded.
        """
        with self.together():
            try:
                prepared = prepare()
            except (Exception, CheckpointException) as error:  # DCP's own is a BaseException
                self._broken = True
                self._hang_up()  # so that the others need not wait for the deadline
                if self.rank == 0:
                    lost = isinstance(error, RankUnreachableError)
                    self._rounds.conclude(RoundOutcome(why=_describe_error(error), unreachable=lost))
                    raise
                outcome = self._rounds.outcome()
                if not outcome.result:
                    raise
                return outcome.result
            outcome = self._conclude(lambda: conclude(prepared)) if self.rank == 0 else self._learn()
            if not outcome.result:
                raise (RankUnreachableError if outcome.unreachable else CheckpointError)(outcome.why)
            return outcome.result

    def from_first(self, action: Callable[[], T]) -> T:
        """Rank 0 does it, every rank gets the result.

        Raises:
            CheckpointError: what went wrong on rank 0, on every rank; or the exchange did not work.
        """
        box: list[Any] = [None, None]
        if self.rank == 0:
            box = _capture_result(action)
        with self.exchanging():
            dist.broadcast_object_list(box, src=0, group=self.group)
        if box[1] is not None:
            raise CheckpointError(box[1])
        result: T = box[0]
        return result

    def from_each(self, action: Callable[[], T]) -> tuple[list[T], list[str]]:
        """Every rank does it, every rank gets all results by rank, and what went wrong.

        Raises:
            CheckpointError: the exchange did not work.
        """
        boxes: list[Any] = [None] * self.world
        box = _capture_result(action)
        with self.exchanging():
            dist.all_gather_object(boxes, box, group=self.group)
        return [box[0] for box in boxes], [box[1] for box in boxes if box[1] is not None]

    def _conclude(self, action: Callable[[], str]) -> RoundOutcome:
        """On rank 0. The outcome stands, even if no rank receives it."""
        outcome = self._rounds.claim()
        if outcome is None:
            result, why = _capture_result(action)
            outcome = RoundOutcome(result or "", why or "")
        self._rounds.conclude(outcome)
        with contextlib.suppress(CheckpointError):  # whoever does not hear it here, asks the store
            self.from_first(lambda: outcome)
        return outcome

    def _learn(self) -> RoundOutcome:
        try:
            return self.from_first(RoundOutcome)
        except CheckpointError:
            return self._rounds.outcome()

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Around each use of `group`. Raises RankUnreachableError."""
        if self.group is None:  # torch would take it for training's own
            raise RankUnreachableError("the ranks are not connected")
        try:
            yield
        except Exception as error:  # torch raises many kinds here
            self._broken = True
            limit = f"{self._deadline.total_seconds():g} s"
            raise RankUnreachableError(
                f"a rank is lost, has given up, or did not answer within {limit}: {error}"
            ) from error

    def _connect_anew(self) -> None:
        """Beside the public `new_group`, which counts groups: a rank that missed one could never make another again."""
        self._hang_up()
        self._rounds.meet()
        c10d, everybody = dist.distributed_c10d, list(range(self.world))
        name = f"{self._name}-{self._rounds.number}"
        try:
            made, _ = c10d._new_process_group_helper(  # noqa: SLF001 - see above
                self.world, self.rank, everybody, "gloo", self._store(), name, timeout=self._connecting
            )
            c10d._world.pg_group_ranks[made] = {each: each for each in everybody}  # noqa: SLF001 - as its caller does
        except Exception as error:  # torch raises many kinds here
            raise RankUnreachableError(f"the ranks cannot reconnect: {error}") from error
        self.group = made
        self._set_deadline()
        _log.warning("the ranks have reconnected after a failed save or load")

    def _set_deadline(self) -> None:
        """Of the exchanges; connecting had its own."""
        dist.distributed_c10d._set_pg_timeout(self._deadline, self.group)  # noqa: SLF001 - torch has no public name for it

    def _store(self) -> dist.Store:
        """A connection of its own, where this torch can: waiting on it must not keep the guard from the store."""
        if self._connected:  # the first time the ranks have just met in it
            _require_store_server(self._jobs)
        self._connected = True
        return dist.PrefixStore(self._name, self._jobs.clone() if hasattr(self._jobs, "clone") else self._jobs)

    def _hang_up(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            with contextlib.suppress(Exception):  # torch raises many kinds here; it may be gone with all groups
                dist.destroy_process_group(group)


def _require_store_server(store: dist.Store) -> None:
    """An OSError if the server is gone: torch itself would retry until the store's own timeout, for minutes.

    The kernel still takes connections for a process that is being killed, and ends them some milliseconds later. A server
    that lives waits for the first word.
    """
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        with socket.create_connection((store.host, store.port), KNOCK_SECONDS) as knock:
            knock.settimeout(DOUBT_SECONDS)
            with contextlib.suppress(TimeoutError):
                if not knock.recv(1):
                    raise ConnectionError(f"{store.host}:{store.port}: the store has ended the connection")


def _capture_result(action: Callable[[], T]) -> list[Any]:
    try:
        return [action(), None]
    except Exception as error:  # noqa: BLE001 - whatever it is: the others wait for an answer
        return [None, _describe_error(error)]


def _describe_error(error: BaseException) -> str:
    known = isinstance(error, OSError | CheckpointError)
    return str(error) if known and str(error) else f"{type(error).__name__}: {error}"

"""The group's store: torch's TCPStore on rank 0, with a timeout on every call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import msgspec
from torch.distributed import DistError, DistStoreError, PrefixStore, Store, TCPStore

from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.message_seal import MessageSeal, SealError

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound=msgspec.Struct)
CALL_S = 10.0  # one call that does not wait for another process
OPENED = "preflight-group/opened"
GRACE_S = 3.0  # from the end of a call's time to its return


class RendezvousLost(Exception):
    """Rank 0 is unreachable, or did not respond in time."""


class UnreadableRecord(RendezvousLost):
    """A record from another group, or another version. The message says how its author differs."""


class GroupMismatch(Exception):
    """This process belongs to another group, or another process has its rank."""


class GroupOpening(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's first record: identifies the group that uses this port."""

    run: str
    world: int


class RendezvousStore:
    """One client of the store; not for two threads at once, since a waiting call would block the other.

    Every call runs in its own thread and is abandoned after its timeout: some of torch's calls have none, and would wait
    forever for a stopped rank 0.

    Raises:
        RendezvousLost: no server listens there within `within_s`, or rank 0 cannot listen.
    """

    def __init__(self, place: RankPlacement, within_s: float, *, host: bool = False, key: bytes = b"") -> None:
        self._place = place
        self._key = key
        self._where = f"{place.address}:{place.port}"
        self._seal = MessageSeal(key, f"{place.run}/{place.world}")
        self._opening = MessageSeal(key, "")
        listens = host and not place.store_is_there
        limit = timedelta(seconds=within_s)

        try:
            self._store = self._timed(
                within_s,
                lambda: TCPStore(place.address, place.port, None, listens, limit, wait_for_workers=False),
            )
        except RendezvousLost as error:
            what = f"rank 0 cannot listen on port {place.port}" if listens else f"cannot reach rank 0 at {self._where}"
            raise RendezvousLost(f"{what}: {error}") from None
        self._keys = PrefixStore(f"preflight-group/{place.run}/{place.world}", self._store)
        if listens:
            text = self._opening.close(OPENED, msgspec.json.encode(GroupOpening(run=place.run, world=place.world)))
            self._timed(CALL_S, lambda: self._store.set(OPENED, text))

    def beside(self, within_s: float) -> RendezvousStore:
        """Another client of the same store."""
        return RendezvousStore(self._place, within_s, key=self._key)

    def check(self, within_s: float) -> None:
        """Check that this process has reached its own group; skipped for a launcher's store, which serves many.

        Raises:
            GroupMismatch: another group uses it.
            RendezvousLost: the store is unreachable.
        """
        if self._place.store_is_there:
            return
        sealed = self._wait(self._store, OPENED, within_s)
        opened = None if sealed is None else _decode_sealed(self._opening, OPENED, sealed, GroupOpening)
        mine = GroupOpening(run=self._place.run, world=self._place.world)
        if opened is not None and opened != mine:
            raise GroupMismatch(
                f"{self._where} serves a group of {opened.world} (run {opened.run or 'without a name'}), not this one of "
                f"{mine.world} (run {mine.run or 'without a name'}); give each group its own MASTER_PORT, and all nodes of a group the same WORLD_SIZE"
            )

    def put(self, key: str, value: msgspec.Struct) -> None:
        """Store a record under a key that only this process writes.

        Raises:
            RendezvousLost: the store is unreachable, or the key exists.
        """
        if not self._first(key, self._seal.close(key, msgspec.json.encode(value))):
            raise RendezvousLost(f"another process wrote {key} at {self._where}")

    def claim(self, key: str, value: S) -> S | None:
        """Store a record under a key that the first writer owns; returns the existing record if another process was first.

        Raises:
            RendezvousLost: the store is unreachable.
        """
        if self._first(key, self._seal.close(key, msgspec.json.encode(value))):
            return None
        return self.take(key, type(value), CALL_S)

    def take(self, key: str, kind: type[T], within_s: float) -> T | None:
        """Wait for the record under a key; None on timeout.

        Raises:
            UnreadableRecord: it is from another group, or invalid.
            RendezvousLost: the store is unreachable.
        """
        sealed = self._wait(self._keys, key, within_s)
        return None if sealed is None else _decode_sealed(self._seal, key, sealed, kind)

    def _first(self, key: str, sealed: str) -> bool:
        return self._timed(CALL_S, lambda: bytes(self._keys.compare_set(key, "", sealed))) == sealed.encode()

    def _wait(self, store: Store, key: str, within_s: float) -> bytes | None:
        limit = timedelta(seconds=max(0.01, within_s))

        def get() -> bytes | None:
            try:
                store.wait([key], limit)
            except DistStoreError:  # a timeout, reported by a reachable store
                return None
            return bytes(store.get(key))

        return self._timed(within_s, get)

    def of_pair(self, name: str) -> PrefixStore:
        """The key prefix under which two nodes meet."""
        return PrefixStore(self._seal.name(name), self._keys)

    def _timed(self, within_s: float, call: Callable[[], R]) -> R:
        answers: list[R] = []
        errors: list[Exception] = []

        def target() -> None:
            try:
                answers.append(call())
            except (DistError, RuntimeError, ValueError) as error:
                errors.append(error)

        thread = threading.Thread(target=target, name="meeting", daemon=True)
        thread.start()
        thread.join(within_s + GRACE_S)
        if errors:
            raise RendezvousLost(f"lost the connection to the rendezvous store: {_first_line(errors[0])}")
        if not answers:
            raise RendezvousLost(f"the rendezvous store at {self._where} does not respond")
        return answers[0]


def _decode_sealed(seal: MessageSeal, key: str, sealed: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(seal.open(key, sealed), type=kind)
    except SealError as error:
        raise UnreadableRecord(str(error)) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableRecord(f"runs another version of preflight: {error}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]

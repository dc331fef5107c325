"""The meeting place of a group: torch's TCPStore at rank 0, asked with time limits only."""

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
CALL_S = 10.0  # one call that waits for nobody
OPENED = "preflight-group/opened"
GRACE_S = 3.0  # from the end of a call's time to its return


class RendezvousLost(Exception):
    """Rank 0 cannot be reached, or said nothing in time."""


class UnreadableRecord(RendezvousLost):
    """What lies there was not written by this group, or by another version. The text says what is odd of who wrote it."""


class GroupMismatch(Exception):
    """This process counts itself to a group that is another, or to a rank that another process has."""


class GroupOpening(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's first word, for whoever comes to its port: which group meets here."""

    run: str
    world: int


class RendezvousStore:
    """One client of the store; not for two threads at once: a call that waits would hold up the other's.

    Every call is made in a thread of its own and left behind when its time is up: some of torch's have no time limit, and would wait
    for ever for a rank 0 that stands still.

    Raises:
        RendezvousLost: nobody listens there within `within_s`, or rank 0 cannot listen.
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
            what = f"rank 0 cannot listen at port {place.port}" if listens else f"no rank 0 at {self._where}"
            raise RendezvousLost(f"{what}: {error}") from None
        self._keys = PrefixStore(f"preflight-group/{place.run}/{place.world}", self._store)
        if listens:
            text = self._opening.close(OPENED, msgspec.json.encode(GroupOpening(run=place.run, world=place.world)))
            self._timed(CALL_S, lambda: self._store.set(OPENED, text))

    def beside(self, within_s: float) -> RendezvousStore:
        """One more client of the same meeting place."""
        return RendezvousStore(self._place, within_s, key=self._key)

    def check(self, within_s: float) -> None:
        """See that this process came to its own group; a store that the launcher holds serves many, and is not asked.

        Raises:
            GroupMismatch: another one meets here.
            RendezvousLost: the store is gone.
        """
        if self._place.store_is_there:
            return
        sealed = self._wait(self._store, OPENED, within_s)
        opened = None if sealed is None else _decode_sealed(self._opening, OPENED, sealed, GroupOpening)
        mine = GroupOpening(run=self._place.run, world=self._place.world)
        if opened is not None and opened != mine:
            raise GroupMismatch(
                f"at {self._where} meets a group of {opened.world} (run {opened.run or 'without a name'}), not this one of "
                f"{mine.world} (run {mine.run or 'without a name'}); give each its own MASTER_PORT, and the same WORLD_SIZE within it"
            )

    def put(self, key: str, value: msgspec.Struct) -> None:
        """Leave a record under a key that nobody else writes.

        Raises:
            RendezvousLost: the store is gone, or somebody did.
        """
        if not self._first(key, self._seal.close(key, msgspec.json.encode(value))):
            raise RendezvousLost(f"somebody else wrote {key} at {self._where}")

    def claim(self, key: str, value: S) -> S | None:
        """Leave a record under a key that whoever comes first has; the record of the other, where another process was first.

        Raises:
            RendezvousLost: the store is gone.
        """
        if self._first(key, self._seal.close(key, msgspec.json.encode(value))):
            return None
        return self.take(key, type(value), CALL_S)

    def take(self, key: str, kind: type[T], within_s: float) -> T | None:
        """The record under a key, waited for; None if it did not come in time.

        Raises:
            Unreadable: it is not of this group, or no such record.
            RendezvousLost: the store is gone.
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
            except DistStoreError:  # nothing came, and the store is there to say so
                return None
            return bytes(store.get(key))

        return self._timed(within_s, get)

    def of_pair(self, name: str) -> PrefixStore:
        """The corner of the store where two nodes find each other."""
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
            raise RendezvousLost(f"the meeting place is gone: {_first_line(errors[0])}")
        if not answers:
            raise RendezvousLost(f"the meeting place at {self._where} stands still")
        return answers[0]


def _decode_sealed(seal: MessageSeal, key: str, sealed: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(seal.open(key, sealed), type=kind)
    except SealError as error:
        raise UnreadableRecord(str(error)) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableRecord(f"speaks another version of preflight: {error}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]

"""The meeting place of a group: torch's TCPStore at rank 0, asked with time limits only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import msgspec
from torch.distributed import DistError, DistStoreError, PrefixStore, TCPStore

from preflight.group.launchers.place import Place

T = TypeVar("T")
R = TypeVar("R")
CALL_S = 10.0  # one call that waits for nobody
GRACE_S = 3.0  # from the end of a call's time to its return


class MeetingLost(Exception):
    """Rank 0 cannot be reached, or said nothing in time."""


class Meeting:
    """One client of the store; not for two threads at once: a call that waits would hold up the other's.

    Every call is made in a thread of its own and left behind when its time is up: some of torch's have no time limit, and would wait
    for ever for a rank 0 that stands still.

    Raises:
        MeetingLost: nobody listens there within `within_s`, or rank 0 cannot listen.
    """

    def __init__(self, place: Place, within_s: float, *, host: bool = False) -> None:
        self._where = f"{place.address}:{place.port}"
        listens = host and not place.store_is_there
        limit = timedelta(seconds=within_s)

        def connect() -> PrefixStore:
            store = TCPStore(place.address, place.port, None, listens, limit, wait_for_workers=False)
            return PrefixStore("preflight-group", store)

        try:
            self._keys = self._timed(within_s, connect)
        except MeetingLost as error:
            what = f"rank 0 cannot listen at port {place.port}" if listens else f"no rank 0 at {self._where}"
            raise MeetingLost(f"{what}: {error}") from None

    def put(self, key: str, value: msgspec.Struct) -> None:
        """Leave a record under a key.

        Raises:
            MeetingLost: the store is gone.
        """
        text = msgspec.json.encode(value).decode()
        self._timed(CALL_S, lambda: self._keys.set(key, text))

    def take(self, key: str, kind: type[T], within_s: float) -> T | None:
        """The record under a key, waited for; None if it did not come in time.

        Raises:
            MeetingLost: the store is gone, or what lies there is no such record.
        """
        limit = timedelta(seconds=max(0.01, within_s))

        def get() -> bytes | None:
            try:
                self._keys.wait([key], limit)
            except DistStoreError:  # nothing came, and the store is there to say so
                return None
            return bytes(self._keys.get(key))

        text = self._timed(within_s, get)
        try:
            return None if text is None else msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise MeetingLost(f"{key} is of another version of preflight: {error}") from None

    def of_pair(self, name: str) -> PrefixStore:
        """The corner of the store where two nodes find each other."""
        return PrefixStore(name, self._keys)

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
            raise MeetingLost(f"the meeting place is gone: {_first_line(errors[0])}")
        if not answers:
            raise MeetingLost(f"the meeting place at {self._where} stands still")
        return answers[0]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]

"""The meeting place of a group: torch's TCPStore at rank 0, asked with time limits only."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TypeVar

import msgspec
from torch.distributed import DistError, PrefixStore, TCPStore

from preflight.group.launchers.place import Place

T = TypeVar("T")
CALL_S = 10.0  # one call that waits for nobody


class MeetingLost(Exception):
    """Rank 0 cannot be reached, or said nothing in time."""


class Meeting:
    """One client of the store; not for two threads at once: a call that waits would hold up the other's.

    Raises:
        MeetingLost: nobody listens there within `within_s`, or rank 0 cannot listen.
    """

    def __init__(self, place: Place, within_s: float, *, host: bool = False) -> None:
        try:
            self._store = TCPStore(
                place.address,
                place.port,
                None,
                host and not place.store_is_there,
                timedelta(seconds=within_s),
                wait_for_workers=False,
            )
        except (DistError, RuntimeError, ValueError) as error:
            what = (
                f"rank 0 cannot listen at port {place.port}" if host else f"no rank 0 at {place.address}:{place.port}"
            )
            raise MeetingLost(f"{what}: {_first_line(error)}") from None
        self._keys: PrefixStore = PrefixStore("preflight-group", self._store)

    def put(self, key: str, value: msgspec.Struct) -> None:
        """Leave a record under a key.

        Raises:
            MeetingLost: the store is gone.
        """
        try:
            self._keys.set_timeout(timedelta(seconds=CALL_S))
            self._keys.set(key, msgspec.json.encode(value).decode())
        except (DistError, RuntimeError) as error:
            raise MeetingLost(f"the meeting place is gone: {_first_line(error)}") from None

    def take(self, key: str, kind: type[T], within_s: float) -> T | None:
        """The record under a key, waited for; None if it did not come in time.

        Raises:
            MeetingLost: the store is gone, or what lies there is no such record.
        """
        until = time.monotonic() + within_s
        try:
            if not self._keys.check([key]):
                self._keys.wait([key], timedelta(seconds=max(0.01, within_s)))
            return msgspec.json.decode(self._keys.get(key), type=kind)
        except msgspec.ValidationError as error:
            raise MeetingLost(f"{key} is of another version of preflight: {error}") from None
        except (DistError, RuntimeError) as error:
            if time.monotonic() >= until - 0.05 and "timeout" in str(error).lower():
                return None
            raise MeetingLost(f"the meeting place is gone: {_first_line(error)}") from None

    def of_pair(self, name: str) -> PrefixStore:
        """The corner of the store where two nodes find each other."""
        return PrefixStore(name, self._keys)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]

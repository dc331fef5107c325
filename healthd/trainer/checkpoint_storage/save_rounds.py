"""Rounds of exchanges between ranks, recorded in the job's store, which survives a broken exchange.

A round is one save or one load. Each rank records when it has left the round, and the result. The next round begins
only when all have, so that all agree whether the exchange must be set up again. The outcome is recorded once, by the
first rank or by one that timed out waiting for it, so a rank whose exchange broke at the very end still learns it.

Uses no framework.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from healthd.trainer.exchange_limits import ExchangeLimits, RankUnreachableError

T = TypeVar("T")
_ILL = 1 << 32  # added beside the 1 of a rank that failed: both counts in one number
_CONCLUDING = b"concluding"
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.01, 0.5


class RoundStore(Protocol):
    """The subset of torch's TCPStore, PrefixStore, FileStore and HashStore that is used."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; return the new value."""

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys exist."""

    def get(self, key: str, /) -> bytes:
        """Return the value."""

    def set(self, key: str, value: str, /) -> None:
        """Set the value."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set the value if the key is absent (expected: ""); return the value then."""


class RoundOutcome(NamedTuple):
    """The outcome of a round: where its result is, or why there is none, and whether an unreachable rank is the reason."""

    result: str = ""
    why: str = ""
    unreachable: bool = False


class OutcomeUnknownError(RankUnreachableError):
    """The first rank began to conclude and no longer answers."""


class StoreLostError(RankUnreachableError):
    """The job's store is unreachable."""


class SaveRounds:
    """One rank's view. All ranks call the methods in the same order; one round at a time."""

    def __init__(self, connect: Callable[[], RoundStore], rank: int, world: int, limits: ExchangeLimits) -> None:
        """Args: `connect`: to a board that is theirs alone, again if need be; `limits`: how long to wait for a rank."""
        self._connect, self._rank, self._world, self._limits = connect, rank, world, limits
        self._seconds = limits.seconds
        self._board = connect()
        self._number = -1
        self._well = True
        self._owed: dict[int, int] = {}

    @property
    def number(self) -> int:
        """The round's number; the same on every rank."""
        return self._number

    def begin(self) -> bool:
        """Wait until every rank has left the previous round.

        Returns:
            Whether all succeeded. If not, the exchange must be set up again. If the store is unreachable: whether
            this rank succeeded; the exchange continues as long as it works.

        Raises:
            RankUnreachableError: a rank does not arrive, or a peer has given up this round.
            StoreLostError: the store is unreachable, and the exchange must be set up again.
        """
        self._number += 1
        before, late = self._number - 1, "a rank has not left the previous save or load"
        if before < 0:
            return True
        try:
            self._tell()
            self._wait(lambda: self._out_of(before) % _ILL >= self._world, late)
            return self._asked(lambda: self._out_of(before)) < _ILL
        except StoreLostError:
            if not self._well:
                raise
            return True

    def meet(self) -> None:
        """Wait until every rank has arrived here, in this round. Raises like `begin`."""
        key = f"{self._number}/met"
        self._asked(lambda: self._board.add(key, 1))
        self._wait(lambda: self._board.add(key, 0) >= self._world, "a rank does not arrive")

    def end(self, *, well: bool) -> None:
        """Leave the round. What cannot be written now is written before the next one."""
        self._well = well
        self._owed[self._number] = 1 if well else 1 + _ILL
        with contextlib.suppress(StoreLostError):
            self._tell()

    def claim(self) -> RoundOutcome | None:
        """Make the others wait for the first rank's conclusion; return an outcome if a rank gave up before."""
        with contextlib.suppress(StoreLostError):  # without the store no other rank can give up there either
            return self._first(_CONCLUDING.decode())
        return None

    def conclude(self, outcome: RoundOutcome) -> None:
        """Record the outcome; for the first rank. If the store is unreachable, only the exchange carries it."""
        text = json.dumps(outcome)
        with contextlib.suppress(StoreLostError):
            if self._first(text) is None:
                self._asked(lambda: self._board.set(self._outcome_key, text))

    def outcome(self) -> RoundOutcome:
        """Return the outcome, or give the round up; for other ranks, if the exchange did not carry it.

        Raises:
            OutcomeUnknownError: the first rank began to conclude and has not finished in time; or the store is
            lost.
        """
        try:
            return self._awaited()
        except StoreLostError as error:
            raise OutcomeUnknownError(str(error)) from error

    def _awaited(self) -> RoundOutcome:
        for last in (False, True):  # while the first rank may still fail, and while it concludes
            end, pause = time.monotonic() + self._seconds, _PAUSE_SECONDS
            while time.monotonic() < end:
                found = self._asked(self._written)
                if found not in (b"", _CONCLUDING):
                    return _decode_outcome(found)
                if self._limits.over():
                    raise OutcomeUnknownError("this generation of the process group has ended")
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            given_up = RoundOutcome(
                why=f"rank {self._rank} has waited {self._seconds:g} s for rank 0", unreachable=True
            )
            if not last and (decided := self._first(json.dumps(given_up))) is not None:
                return decided
        raise OutcomeUnknownError(f"rank 0 has not reported within {2 * self._seconds:g} s")

    @property
    def _outcome_key(self) -> str:
        return f"{self._number}/outcome"

    def _first(self, text: str) -> RoundOutcome | None:
        """Write it if nothing is there; return the outcome then, None while it is being concluded."""
        found = self._asked(lambda: self._board.compare_set(self._outcome_key, "", text))
        return None if found == _CONCLUDING else _decode_outcome(found)

    def _written(self) -> bytes:
        return self._board.get(self._outcome_key) if self._board.check([self._outcome_key]) else b""

    def _add(self, key: str, amount: int) -> int:
        return self._board.add(key, amount)

    def _out_of(self, number: int) -> int:
        return self._board.add(f"{number}/out", 0)

    def _tell(self) -> None:
        for number, amount in list(self._owed.items()):
            self._asked(functools.partial(self._add, f"{number}/out", amount))
            del self._owed[number]

    def _wait(self, come: Callable[[], bool], why: str) -> None:
        end, pause = time.monotonic() + self._seconds, _PAUSE_SECONDS
        while True:
            if self._asked(lambda: self._out_of(self._number)) >= _ILL:
                raise RankUnreachableError("a rank has given up")
            if self._asked(come):
                return
            self._limits.require_current()
            if time.monotonic() > end:
                raise RankUnreachableError(f"{why} within {self._seconds:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _asked(self, question: Callable[[], T]) -> T:
        """Call the store; reconnect once, as a connection idle for hours may be dead. Every request may be repeated."""
        try:
            return question()
        except Exception:  # noqa: BLE001 - a store of any make
            try:
                self._board = self._connect()
                return question()
            except Exception as error:
                raise StoreLostError(f"the job's store is unreachable: {error}") from error


def _decode_outcome(content: bytes) -> RoundOutcome:
    return RoundOutcome(*json.loads(content))

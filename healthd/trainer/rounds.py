"""What the ranks know of their exchanges, on the job's own store: it stays where the exchange itself broke.

A round is one save or one load. Each rank says when it is out of it, and how it went. Nobody begins the next round before
all have, so all see alike whether what they exchange over has to be made anew. What came of a round is written down once,
by the first rank or by whoever gave up waiting for it, so a rank whose exchange broke at the very end still learns it.

No framework in here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from healthd.trainer.checkpoint_files import CheckpointError
from healthd.trainer.exchange import ExchangeLimits

T = TypeVar("T")
_ILL = 1 << 32  # added beside the 1 of a rank that came out ill: both counts in one number
_CONCLUDING = b"concluding"
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.01, 0.5


class Board(Protocol):
    """What torch's TCPStore, PrefixStore, FileStore and HashStore have."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; the new value."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all of them are there."""
        ...

    def get(self, key: str, /) -> bytes:
        """What is there."""
        ...

    def set(self, key: str, value: str, /) -> None:
        """Write."""
        ...

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write, if the key is not there (expected: ""); what is there then."""
        ...


class Outcome(NamedTuple):
    """What came of a round: where its result is, or why there is none."""

    result: str = ""
    why: str = ""


class OutcomeUnknownError(CheckpointError):
    """The first rank began to conclude, and cannot be heard any more."""


class StoreLostError(CheckpointError):
    """The job's store is out of reach."""


class Rounds:
    """One rank's view. All ranks call the methods in the same order; one round at a time."""

    def __init__(self, connect: Callable[[], Board], rank: int, world: int, limits: ExchangeLimits) -> None:
        """Args: `connect`: to a board that is theirs alone, again if need be; `limits`: how long to wait for a rank."""
        self._connect, self._rank, self._world, self._limits = connect, rank, world, limits
        self._seconds = limits.seconds
        self._board = connect()
        self._number = -1
        self._well = True
        self._owed: dict[int, int] = {}

    @property
    def number(self) -> int:
        """Of this round; the same on every rank."""
        return self._number

    def begin(self) -> bool:
        """Wait until every rank is out of the round before.

        Returns:
            Whether all came out of it well. If not, what they exchange over is to be made anew. Where the store is out of
            reach: whether this rank did; the exchange goes on as long as it works.

        Raises:
            CheckpointError: a rank does not come, or a peer has given this round up already.
            StoreLostError: and the exchange is to be made anew.
        """
        self._number += 1
        before, late = self._number - 1, "a rank is not out of the save or load before"
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
        """Wait until every rank has come here, in this round. Raises as `begin`."""
        key = f"{self._number}/met"
        self._asked(lambda: self._board.add(key, 1))
        self._wait(lambda: self._board.add(key, 0) >= self._world, "a rank does not come")

    def end(self, *, well: bool) -> None:
        """This rank is out of the round. What cannot be told now is told before the next one."""
        self._well = well
        self._owed[self._number] = 1 if well else 1 + _ILL
        with contextlib.suppress(StoreLostError):
            self._tell()

    def claim(self) -> Outcome | None:
        """For the first rank: from now on the others wait for what it concludes. An outcome, if somebody gave up before."""
        with contextlib.suppress(StoreLostError):  # nor can anybody else be giving up there
            return self._first(_CONCLUDING.decode())
        return None

    def conclude(self, outcome: Outcome) -> None:
        """For the first rank: what came of the round. Where the store is out of reach, the exchange alone tells the others."""
        text = json.dumps(outcome)
        with contextlib.suppress(StoreLostError):
            if self._first(text) is None:
                self._asked(lambda: self._board.set(self._outcome_key, text))

    def outcome(self) -> Outcome:
        """For the other ranks, where the exchange did not tell: what came of the round, or that it is given up.

        Raises:
            OutcomeUnknownError: the first rank began to conclude and has not told the end in time; or the store is lost.
        """
        try:
            return self._awaited()
        except StoreLostError as error:
            raise OutcomeUnknownError(str(error)) from error

    def _awaited(self) -> Outcome:
        for last in (False, True):  # while it may still fail in its own exchanges, and while it concludes
            end, pause = time.monotonic() + self._seconds, _PAUSE_SECONDS
            while time.monotonic() < end:
                found = self._asked(self._written)
                if found not in (b"", _CONCLUDING):
                    return _read(found)
                if self._limits.over():
                    raise OutcomeUnknownError("this generation of the process group has ended")
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            given_up = Outcome(why=f"rank {self._rank} has waited {self._seconds:g} s for rank 0")
            if not last and (decided := self._first(json.dumps(given_up))) is not None:
                return decided
        raise OutcomeUnknownError(f"rank 0 has not told within {2 * self._seconds:g} s")

    @property
    def _outcome_key(self) -> str:
        return f"{self._number}/outcome"

    def _first(self, text: str) -> Outcome | None:
        """Write it if nothing is there; the outcome that is there then, None while it is being concluded."""
        found = self._asked(lambda: self._board.compare_set(self._outcome_key, "", text))
        return None if found == _CONCLUDING else _read(found)

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
                raise CheckpointError("a rank has given it up")
            if self._asked(come):
                return
            self._limits.require_current()
            if time.monotonic() > end:
                raise CheckpointError(f"{why} within {self._seconds:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _asked(self, question: Callable[[], T]) -> T:
        """A connection that was idle for hours may be dead: then a new one is asked. Every question may be asked twice."""
        try:
            return question()
        except Exception:  # noqa: BLE001 - a store of any make
            try:
                self._board = self._connect()
                return question()
            except Exception as error:
                raise StoreLostError(f"the job's store is out of reach: {error}") from error


def _read(content: bytes) -> Outcome:
    return Outcome(*json.loads(content))

"""Reads the stacks of ranks that make no progress, now and then, in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from healthd.collectors.rank_stacks import RANKS_MAX, LocalRank, read_rank_stacks
from vocabulary.messages.evidence_bundle import RankStack

STILL_S, EVERY_S = 10.0, 30.0  # seconds without progress, and between readings
KEPT_S = 180.0  # an abort ends a stuck rank before its evidence is collected


class StillRank(NamedTuple):
    """A rank that makes no progress, and where its loop is: step count and section."""

    rank: LocalRank
    place: tuple[int, str]


class _Reading(NamedTuple):
    """The last attempt to read one rank at one place; `stack` is None if nothing could be read."""

    tried_at: float
    stack: RankStack | None


class StackWatcher:
    """Keeps the last stack of each rank that stood still in the last minutes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._known: dict[StillRank, _Reading] = {}  # replaced whole, for any thread
        self._thread: threading.Thread | None = None

    @property
    def stacks(self) -> tuple[RankStack, ...]:
        """The newest stack of each rank. Callable from any thread."""
        known = sorted((each.stack for each in self._known.values() if each.stack), key=lambda stack: stack.at)
        return tuple({(stack.job, stack.attempt, stack.rank, stack.pid): stack for stack in known}.values())

    def look(self, still: Sequence[StillRank], now: float) -> dict[StillRank, str]:
        """Have stacks read that are due, and return what is known of where these ranks wait. Does not block."""
        known = {rank: each for rank, each in self._known.items() if 0 <= now - each.tried_at < KEPT_S}
        if self._thread is None or not self._thread.is_alive():
            self._known = known
            due = [each for each in still if each not in known or now - known[each].tried_at >= EVERY_S][:RANKS_MAX]
            if due:
                self._start(due, now)
        return {each: stack.place for each in still if each in known and (stack := known[each].stack) is not None}

    def wait(self, seconds: float) -> None:
        """Wait until the stacks that are due have been read. For tests and for the end of a program."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _start(self, due: Sequence[StillRank], now: float) -> None:
        thread = threading.Thread(target=self._read, args=(due, now), name="stacks", daemon=True)
        with contextlib.suppress(RuntimeError):  # no further thread can be started now
            thread.start()
            self._thread = thread

    def _read(self, due: Sequence[StillRank], now: float) -> None:
        known = self._known
        first = {each.rank.process for each in due if each not in known}
        read = read_rank_stacks(self._directory, [each.rank for each in due], now, first)
        found = {(stack.job, stack.attempt, stack.rank, stack.pid): stack for stack in read}
        fresh = {}
        for each in due:
            rank, before = each.rank, known.get(each)
            stack = found.get((rank.job, rank.attempt, rank.rank, rank.process.pid))
            if stack is not None and before is not None and before.stack is not None and not stack.calls:
                stack = replace(stack, calls=before.stack.calls)
            fresh[each] = _Reading(now, stack)
        self._known = known | fresh

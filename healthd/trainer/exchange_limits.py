"""How long the ranks of a job wait for each other, and what ends a wait before its time. No framework in here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from healthd.trainer.agreement import Store
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.rank_replacement import NextGeneration

EXCHANGE_SECONDS = 300.0  # a slow disk of one rank is within it; a dead process is noticed at once
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.002, 0.05


def is_never_over() -> bool:
    """For a process group that nothing follows."""
    return False


class RankUnreachableError(CheckpointError):
    """A rank is lost, has given up, or does not answer: where ranks are replaced, another process may continue for it."""


class GenerationOverError(RankUnreachableError):
    """A newer generation of the process group is there, or the job stops: whoever is awaited here need not come."""

    def __init__(self) -> None:
        super().__init__("this generation of the process group has ended")


class ExchangeLimits(NamedTuple):
    """Limits of what the ranks of one generation of a process group do together.

    `connect_seconds` is for ranks that have met already. No shut-down frees a rank that waits for a connection from a
    lost one, so this is short where a newer generation may follow; None: as long as an exchange. Gloo takes it for each
    answer of the store, and waits five times as long for a connection.
    """

    seconds: float = EXCHANGE_SECONDS
    connect_seconds: float | None = None
    over: Callable[[], bool] = is_never_over  # whether the generation has ended

    @property
    def connect(self) -> float:
        """Seconds for ranks that have met to connect."""
        return self.seconds if self.connect_seconds is None else self.connect_seconds

    def require_current(self) -> None:
        """Raises GenerationOverError."""
        if self.over():
            raise GenerationOverError


class CounterStore(Protocol):
    """The part of a store in which ranks meet."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; the new value."""


def await_all_ranks(store: CounterStore, key: str, world: int, limits: ExchangeLimits) -> None:
    """Wait until all `world` ranks have come here; only then connect.

    Raises:
        GenerationOverError: a rank was lost on its way here.
        CheckpointError: a rank does not come in time.
    """
    store.add(key, 1)
    end, pause = time.monotonic() + limits.seconds, _PAUSE_SECONDS
    while (here := store.add(key, 0)) < world:
        limits.require_current()
        if time.monotonic() > end:
            raise CheckpointError(f"{here} of {world} ranks arrived within {limits.seconds:g} s")
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)


class GenerationStore:
    """What the ranks of one generation share; no rank waits for an answer in it once the generation has ended."""

    def __init__(self, store: Store, over: Callable[[], bool]) -> None:
        """Args: `over`: whether a newer generation is there."""
        self._store, self._over = store, over

    def add(self, key: str, amount: int, /) -> int:
        """As the store does it. Raises NextGeneration."""
        self._require_current()
        return self._store.add(key, amount)

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """As the store does it. Raises NextGeneration."""
        self._require_current()
        return self._store.compare_set(key, expected, desired)

    def _require_current(self) -> None:
        if self._over():
            raise NextGeneration

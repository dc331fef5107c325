"""Calls a store that may answer late, lose answers, or be unreachable, always with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.01, 0.5

_Answer = TypeVar("_Answer")


class StoreGoneError(Exception):
    """The store did not answer in time, after all retries."""


class StoreCaller:
    """Calls in its own thread, which is abandoned if no answer comes. `pause` and `monotonic` are for tests."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._monotonic = monotonic
        self._pause = pause

    def once(self, ask: Callable[[], _Answer], seconds: float) -> _Answer:
        """Call once, for requests that must not be repeated.

        Raises:
            TimeoutError: no answer in `seconds`. Whether the request has arrived, or still will, is unknown.
            BaseException: what `ask` raised. Whether the request has arrived is unknown too.
        """
        answers: list[_Answer] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(ask())
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                errors.append(error)

        thread = threading.Thread(target=run, name="healthd-store", daemon=True)
        thread.start()
        thread.join(seconds)
        if answers:
            return answers[0]
        if errors:
            raise errors[0]
        raise TimeoutError(f"no answer within {seconds:.3g} s")

    def insist(self, ask: Callable[[], _Answer], seconds: float) -> _Answer:
        """Call repeatedly, for idempotent requests.

        Raises:
            StoreGoneError: no answer in `seconds`; names the last problem.
        """
        ends, pause = self._monotonic() + seconds, FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.once(ask, max(ends - self._monotonic(), FIRST_PAUSE_SECONDS))
            except Exception as error:  # a store of any type
                if self._monotonic() + pause >= ends:
                    why = f"the ranks' store is unreachable ({seconds:g} s): {type(error).__name__}: {error}"
                    raise StoreGoneError(why) from error
            self._pause(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

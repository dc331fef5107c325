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
    """Makes each call in a thread of its own, and abandons the thread if no answer comes. `pause` and `monotonic` are for tests."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._monotonic = monotonic
        self._pause = pause

    def call_once(self, ask: Callable[[], _Answer], seconds: float) -> _Answer:
        """Call `ask` once. Use this for requests that must not be repeated.

        Raises:
            TimeoutError: no answer within `seconds`. The request may have arrived, or may still arrive.
            BaseException: what `ask` raised. The request may have arrived.
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

    def call_with_retries(self, ask: Callable[[], _Answer], seconds: float) -> _Answer:
        """Call `ask` until it answers. Use this for idempotent requests only.

        Raises:
            StoreGoneError: no answer within `seconds`; the message names the last error.
        """
        ends, pause = self._monotonic() + seconds, FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.call_once(ask, max(ends - self._monotonic(), FIRST_PAUSE_SECONDS))
            except Exception as error:  # a store of any type
                if self._monotonic() + pause >= ends:
                    why = f"the ranks' store is unreachable ({seconds:g} s): {type(error).__name__}: {error}"
                    raise StoreGoneError(why) from error
            self._pause(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

"""One piece of work behind training's back, at most one at a time, whose failure is told by the next call."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError  # noqa: A004 - the built-in one from Python 3.11 on
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """At the interpreter's exit the work is waited for; `os._exit` leaves it behind."""

    def __init__(self, name: str) -> None:
        """Args: `name`: of the thread, which starts with the first work."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._future: Future[T] | None = None

    def start(self, work: Callable[[], T]) -> None:
        """Begin; what was begun before must have been taken in with `wait`."""
        if self._future is not None:
            raise RuntimeError("wait() for the work before this one first")
        self._future = self._executor.submit(work)

    def wait(self) -> T | None:
        """The result of what was begun, once; None if nothing was.

        Raises:
            Exception: what the work raised.
        """
        future, self._future = self._future, None
        return None if future is None else future.result()

    def look(self, seconds: float) -> T | None:
        """For other threads: the result, if it is there within so many seconds; it is not taken in, nor is an error."""
        future = self._future
        try:
            return None if future is None else future.result(seconds)
        except TimeoutError:
            return None

    @property
    def done(self) -> bool:
        """Nothing is under way; its result or error may still wait to be taken in."""
        return self._future is None or self._future.done()

    def close(self) -> None:
        """End the thread, after the work."""
        self._executor.shutdown()

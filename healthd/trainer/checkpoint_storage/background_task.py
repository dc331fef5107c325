"""One background task beside training, at most one at a time; the next call raises its failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError  # noqa: A004 - the built-in one from Python 3.11 on
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """At interpreter exit the task is waited for; `os._exit` abandons it."""

    def __init__(self, name: str) -> None:
        """Args: `name`: of the thread, which starts with the first task."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._future: Future[T] | None = None

    def start(self, work: Callable[[], T]) -> None:
        """Start a task; the previous one must have been collected with `wait`."""
        if self._future is not None:
            raise RuntimeError("call wait() for the previous task first")
        self._future = self._executor.submit(work)

    def wait(self) -> T | None:
        """Return the task's result, once; None if there was none.

        Raises:
            Exception: what the task raised.
        """
        future, self._future = self._future, None
        return None if future is None else future.result()

    def look(self, seconds: float) -> T | None:
        """Return the result if available within so many seconds, without collecting it or its error.

        For other threads.
        """
        future = self._future
        try:
            return None if future is None else future.result(seconds)
        except TimeoutError:
            return None

    @property
    def done(self) -> bool:
        """Whether no task runs; its result or error may still have to be collected."""
        return self._future is None or self._future.done()

    def close(self) -> None:
        """End the thread, after the task."""
        self._executor.shutdown()


class ParallelCall:
    """A call in a thread of its own, from the beginning; at interpreter exit too, where executors refuse tasks."""

    def __init__(self, call: Callable[[], object], name: str) -> None:
        """Raises RuntimeError: no thread can start."""
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for its end; raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = error

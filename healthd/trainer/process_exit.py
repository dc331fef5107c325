"""Ends this process with the right code, in time, whatever hangs: a stuck collective, a driver, a destructor."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FLUSH_SECONDS = 1.0
SAY_SECONDS = 0.2

_log = logging.getLogger("healthd.trainer")
_saying: list[threading.Thread] = []


def log_without_blocking(level: int, message: str, *words: object, error: BaseException | None = None) -> None:
    """Log and wait only a moment: another thread may be stuck writing a log line to a file server or an unread pipe."""
    thread = threading.Thread(
        target=_log.log, args=(level, message, *words), kwargs={"exc_info": error}, name="healthd-says", daemon=True
    )
    _saying[:] = [each for each in _saying if each.is_alive()]
    _saying.append(thread)
    thread.start()
    thread.join(SAY_SECONDS)


def run_within(seconds: float, name: str, action: Callable[[], None]) -> bool:
    """Run `action` in its own thread and wait at most `seconds`.

    Returns:
        Whether it finished without an exception. A hanging one is abandoned.
    """
    finished = []

    def run() -> None:
        try:
            action()
            finished.append(True)
        except Exception:  # noqa: BLE001 - the process is leaving: nothing that goes wrong may stop that
            _log.warning("%s failed; exiting anyway", name, exc_info=True)

    thread = threading.Thread(target=run, name=f"healthd-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log_without_blocking(logging.WARNING, "%s did not finish within %g s; exiting anyway", name, seconds)
    return bool(finished)


def exit_now(code: int) -> None:
    """End the process without destructors, atexit handlers, or anything else that could hang.

    Output is flushed if that works at once.
    """
    ends = time.monotonic() + FLUSH_SECONDS
    flushing = threading.Thread(target=_flush_streams, name="healthd-flush", daemon=True)
    try:
        flushing.start()
        for thread in (*_saying, flushing):
            thread.join(max(0.0, ends - time.monotonic()))
    except RuntimeError:  # during shutdown no thread can start; the timer of `leave_within` already runs
        if threading.current_thread() is threading.main_thread():
            _flush_streams()
    os._exit(code)


def exit_within(seconds: float, code: int) -> None:
    """End the process with `code` in so many seconds, whatever is stuck: nothing is flushed or logged."""
    timer = threading.Timer(seconds, os._exit, args=(code,))
    timer.daemon = True
    timer.start()


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue


_last_words: list[Callable[[], None]] = []


@contextmanager
def register_final_action(action: Callable[[], None]) -> Iterator[None]:
    """Run `action` before an aborted rank of a condemned node ends inside this block, where no `Leave` can unwind it."""
    _last_words.append(action)
    try:
        yield
    finally:
        _last_words.remove(action)


def run_final_actions() -> None:
    """Run the actions of `register_final_action`, newest first."""
    for action in reversed(_last_words):
        action()


class ExitGuard:
    """Guarantees exit: the code is right even if destructors crash, and a deadline ends what hangs.

    Create it early, so that its atexit handler runs after those of libraries imported later.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._code: int | None = None
        atexit.register(self._at_exit)

    def leave_within(self, seconds: float, code: int) -> None:
        """End the process with `code`, at the latest after `seconds`."""
        self._code = code
        timer = threading.Timer(seconds, exit_now, args=(code,))
        timer.daemon = True
        timer.start()

    def release(self) -> None:
        """Cancel: the guard is done and no order ends this process."""
        if self._code is None:
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if self._code is not None and os.getpid() == self._pid:
            exit_now(self._code)

"""Ending this process with the right code, in time, whatever hangs: a stuck collective, a driver, a destructor."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("healthd.trainer")


def within(seconds: float, name: str, deed: Callable[[], None]) -> bool:
    """Run `deed` in a thread of its own and wait at most `seconds` for it.

    Returns:
        Whether it finished without an exception. One that hangs is left behind.
    """
    finished = []

    def run() -> None:
        try:
            deed()
            finished.append(True)
        except Exception:  # noqa: BLE001 - the process is leaving: nothing that goes wrong may stop that
            _log.warning("%s failed; leaving all the same", name, exc_info=True)

    thread = threading.Thread(target=run, name=f"healthd-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _log.warning("%s did not finish within %g s; leaving all the same", name, seconds)
    return bool(finished)


def exit_now(code: int) -> None:
    """End the process: no destructors, no atexit handlers, nothing that could hang."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)


_last_words: list[Callable[[], None]] = []


@contextmanager
def last_words(deed: Callable[[], None]) -> Iterator[None]:
    """Inside, a rank of a condemned node that is aborted does this before its process ends, where no `Leave` can unwind it."""
    _last_words.append(deed)
    try:
        yield
    finally:
        _last_words.remove(deed)


def say_last_words() -> None:
    """Do what `last_words` holds, newest first."""
    for deed in reversed(_last_words):
        deed()


class ExitGuard:
    """Makes an orderly exit certain: the code is right although destructors may crash, and a deadline ends what hangs.

    Made early, so that its atexit handler runs after those of the libraries that come later.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._code: int | None = None
        atexit.register(self._at_exit)

    def leave_within(self, seconds: float, code: int) -> None:
        """From now on the process ends with `code`, at the latest after `seconds`."""
        self._code = code
        timer = threading.Timer(seconds, exit_now, args=(code,))
        timer.daemon = True
        timer.start()

    def release(self) -> None:
        """The guard is done and nobody ordered this process to leave."""
        if self._code is None:
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if self._code is not None and os.getpid() == self._pid:
            exit_now(self._code)

"""Termination signals as an order: if every rank got one, all save at one step and leave; else this rank just ends.

SIGTERM always is one. `HEALTHD_TERMINATION_SIGNALS=USR2,XCPU` adds others, such as the one a scheduler sends before a
time limit; `HEALTHD_TERMINATION_SECONDS` limits the time to agree, if it is not the guard's default. The agreed save
may take longer, up to `HEALTHD_KILL_SECONDS` after the signal, when the sender is known to kill.

Python's handlers run in the main thread, and not while that is stuck in a collective. So the interpreter also writes
each signal to a pipe, which the guard's watcher reads. If the program already uses that pipe (asyncio), it keeps it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping
from types import FrameType

from healthd.trainer.beacons.beacon_page import MailboxOrder
from vocabulary.clock import Clock

ORDER_ID = "sigterm"  # the same on every rank, whichever signal it got, so that their votes match
SIGNALS_VARIABLE, SECONDS_VARIABLE = "HEALTHD_TERMINATION_SIGNALS", "HEALTHD_TERMINATION_SECONDS"
KILL_VARIABLE = "HEALTHD_KILL_SECONDS"
SECONDS_MAX = 24 * 3600.0
SAVE_SECONDS = 1800.0  # a save that takes so long after a signal hangs; the watchdogs use the same limit
BEFORE_KILL_SECONDS = 5.0  # time for a rank to flush its last snapshot and leave
_KIND = "checkpoint_then_eject"
_ALLOWED = {name.removeprefix("SIG"): getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")}  # fmt: skip
_UNTOUCHED = (signal.SIG_DFL, signal.default_int_handler)

_log = logging.getLogger("healthd.trainer")


def read_notice_signals(environ: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    """Return SIGTERM and the signals in the variable, with or without SIG; unknown names are ignored with a warning."""
    found = [signal.SIGTERM]
    for word in environ.get(SIGNALS_VARIABLE, "").replace(",", " ").split():
        number = _ALLOWED.get(word.upper().removeprefix("SIG"))
        if number is None:
            _log.warning("%s: %r is none of %s; ignored", SIGNALS_VARIABLE, word, ", ".join(_ALLOWED))
        elif number not in found:
            found.append(number)
    return tuple(found)


def read_notice_seconds(environ: Mapping[str, str], default: float, variable: str = SECONDS_VARIABLE) -> float:
    """Return the time for ranks to agree; an invalid number is ignored with a warning."""
    text = environ.get(variable, "")
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= SECONDS_MAX:
        return seconds
    _log.warning("%s: %r is not a number of seconds up to a day; ignored", variable, text)
    return default


class TerminationNotices:
    """Records termination signals. Leaves alone those the program handles, and all of them outside the main thread."""

    def __init__(self, clock: Clock, grace_seconds: float, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._clock = clock
        self._grace_seconds = read_notice_seconds(environ, grace_seconds) if grace_seconds > 0 else 0.0
        kill_seconds = read_notice_seconds(environ, SAVE_SECONDS + BEFORE_KILL_SECONDS, KILL_VARIABLE)
        self._end_seconds = max(self._grace_seconds, kill_seconds - BEFORE_KILL_SECONDS)
        self._under_torchrun = "TORCHELASTIC_RUN_ID" in environ
        self._pid = os.getpid()
        self._order: MailboxOrder | None = None
        self._first: int = signal.SIGTERM
        self._seen: set[int] = set()
        self._ears = _SignalPipe()
        self._heard: dict[int, float] = {}
        self.noticed = False
        main = threading.current_thread() is threading.main_thread()
        self._previous = {
            number: handler
            for number in (read_notice_signals(environ) if self._grace_seconds > 0 and main else ())
            if (handler := signal.getsignal(number)) in _UNTOUCHED
        }
        for number in self._previous:
            signal.signal(number, self._notice)
        if self._previous:
            self._ears.open()

    @property
    def listens(self) -> bool:
        """Whether there is a signal to wait for."""
        return bool(self._previous)

    def overdue(self) -> MailboxOrder | None:
        """Return the order of a signal that the ranks should have agreed on by now. For the watcher."""
        now = self._clock.monotonic()
        for number in self._ears.heard():
            again = number in self._heard and not self._under_torchrun
            if number in self._previous:
                self._heard[number] = now - self._end_seconds if again else now
        late = [number for number, at in self._heard.items() if now - at >= self._grace_seconds]
        return self._order_of(late[0]) if late else None

    @property
    def out_of_time(self) -> bool:
        """Return whether this rank must end now whatever was agreed: the signal is too old, or came twice.

        For the watcher.
        """
        now = self._clock.monotonic()
        return any(now - at >= self._end_seconds for at in self._heard.values())

    def take(self) -> MailboxOrder | None:
        """Return the first signal's order, once."""
        order, self._order = self._order, None
        return order

    def die(self) -> None:
        """End the process as the first signal would have."""
        self._die_of(self._first)

    def restore(self) -> None:
        """Restore the previous signal handlers."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._previous.items():
                signal.signal(number, handler)
            self._previous = {}
            self._ears.close()

    def _notice(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid or (
            number in self._seen and not self._under_torchrun
        ):  # a forked worker does not take part
            self._die_of(number)
        self._seen.add(number)
        if self.noticed:
            return  # SIGTERM at the limit that another signal announced: this rank is already leaving
        self.noticed, self._first = True, number
        self._order = self._order_of(number)

    def _order_of(self, number: int) -> MailboxOrder:
        expires_at = self._clock.wall() + self._grace_seconds
        return MailboxOrder(ORDER_ID, _KIND, signal.Signals(number).name, (), expires_at)

    def _die_of(self, number: int) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class _SignalPipe:
    """A pipe to which the interpreter writes each signal's number, whatever the main thread is stuck in."""

    def __init__(self) -> None:
        self._ends = (-1, -1)

    def open(self) -> None:
        """Open the pipe. In the main thread only."""
        self._ends = ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = signal.set_wakeup_fd(ends[1], warn_on_full_buffer=False)
        if before == -1:
            os.register_at_fork(after_in_child=self._let_go)  # a child's signals do not count
        else:
            signal.set_wakeup_fd(before)
            self.close()

    def heard(self) -> bytes:
        """Return the signals since the last call."""
        try:
            return os.read(self._ends[0], 256) if self._ends[0] >= 0 else b""
        except OSError:
            return b""

    def close(self) -> None:
        """Close the pipe. In the main thread only. Idempotent."""
        self._let_go()
        ends, self._ends = self._ends, (-1, -1)
        for end in ends:
            if end >= 0:
                os.close(end)

    def _let_go(self) -> None:
        if self._ends[1] >= 0:
            before = signal.set_wakeup_fd(-1)
            if before not in (-1, self._ends[1]):
                signal.set_wakeup_fd(before)

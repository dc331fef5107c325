"""SIGTERM as an order: if every rank of the job got it, they save at one step and leave; else this one just ends."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from healthd.trainer.page import MailboxOrder
from vocabulary.clock import Clock

_KIND = "checkpoint_then_eject"


class Termination:
    """Notes SIGTERM. Leaves the signal alone where the program handles it itself, and outside the main thread."""

    def __init__(self, clock: Clock, grace_seconds: float) -> None:
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._pid = os.getpid()
        self._order: MailboxOrder | None = None
        self.noticed = False
        main = threading.current_thread() is threading.main_thread()
        self._installed = grace_seconds > 0 and main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._installed:
            signal.signal(signal.SIGTERM, self._notice)

    def take(self) -> MailboxOrder | None:
        """The order the signal stands for, once."""
        order, self._order = self._order, None
        return order

    def die(self) -> None:
        """End as the signal would have without us."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def restore(self) -> None:
        """Give the signal back."""
        if self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._installed = False

    def _notice(self, _signal: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid or self.noticed:  # a forked worker, or the second SIGTERM: somebody means it
            self.die()
            return
        self.noticed = True
        expires_at = self._clock.wall() + self._grace_seconds
        self._order = MailboxOrder(ORDER_ID, _KIND, "SIGTERM", (), expires_at)


ORDER_ID = "sigterm"  # the same on every rank: that is how they meet in the vote

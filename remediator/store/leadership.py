"""Leadership of one process: campaign, renew the lease, and answer at any moment whether it may act.

Two guarantees: the epoch fences *commits* inside their own transaction (`journal.py`). *Outside effects* start only
while the lease was confirmed less than `LEASE_S` ago, and a new leader waits as long before its first one; so the
effects of two leaders never overlap, however late the old one learns that it was replaced.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from remediator.store.leader_lease import LeaderLease
from remediator.store.writer_locks import WriterLock

log = logging.getLogger(__name__)

CONFIRM_S = 0.4


def _boot_clock_s() -> float:
    """Seconds, including time in suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """Campaigns for leadership, renews it, and reports its end. `may_act` is safe to call from any thread."""

    def __init__(self, lock: WriterLock, over: Callable[[str], None] = lambda _why: None) -> None:
        self.trouble = ""
        self.over = over  # called once with why this term has ended; the process should exit then
        self._lock = lock
        self._lease = LeaderLease()
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None

    def campaign(self) -> bool:
        """Try once to become the leader. May raise the database's errors."""
        self._lease = LeaderLease()
        return self._lock.acquire()

    def begin_term(self) -> int:
        """Increase the epoch and start renewing the lease. Returns the epoch of this term."""
        asked = _boot_clock_s()
        self._lease = LeaderLease.granted(self._lock.raise_epoch(), asked, _boot_clock_s())
        if self._lock.can_be_lost and self._watch is None:
            self._watch = threading.Thread(target=self._keep, name="lead", daemon=True)
            self._watch.start()
        return self._lease.epoch

    def may_act(self) -> bool:
        """Return whether an outside effect may start now."""
        if not self._lock.can_be_lost:
            return self._lease.epoch > 0
        return self._lease.may_act(_boot_clock_s())

    def resign(self) -> None:
        """Stop renewing and release the lock."""
        self._stopping.set()
        if self._watch is not None:
            self._watch.join(timeout=10)
        self._lease = LeaderLease()
        self._lock.hand_over()

    def _keep(self) -> None:
        while not self._stopping.wait(CONFIRM_S):
            asked = _boot_clock_s()
            try:
                # After a lost session this takes the lock again. If no other term began meanwhile, this process's state
                # is still current, and its term continues.
                held, epoch = self._lock.acquire(), self._lock.epoch()
            except Exception as error:  # noqa: BLE001 - without this thread the process would stand there and never act again
                self._lock.release()
                self._say(f"leadership cannot be confirmed ({_first_line(error)}); no action starts until it is")
                continue
            lease = self._lease.heard(asked, epoch, held=held)
            if lease is None:
                why = f"epoch {self._lease.epoch} has ended, {epoch} has begun: another replica leads; this one stops"
                self._lease = LeaderLease()
                self._say(why)
                self.over(why)
                return
            self._lease = lease
            if held:
                self._say("")

    def _say(self, trouble: str) -> None:
        if trouble and not self.trouble:
            log.critical("%s", trouble)
        elif self.trouble and not trouble:
            log.warning("leadership is confirmed again")
        self.trouble = trouble


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

"""The newest swaps of the jobs whose launcher runs on this node, in memory and within bounds.

Nothing is stored: a launcher repeats its swaps every minute, and each report repeats what is here.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple

from vocabulary.messages.swap_messages import JobSwap

KEPT_S = 600.0  # after the last message of the launcher
JOBS_MAX, JOBS_PER_USER_MAX = 32, 4  # at the limit the job of the largest user that was silent for longest is dropped
POSTS_PER_S, POSTS_BURST = 2.0, 8.0  # of one user
USERS_MAX = 256  # whose rate is remembered


class _JobEntry(NamedTuple):
    uid: int
    at: float
    swaps: tuple[JobSwap, ...]


class SwapRegister:
    """Swaps by job. Times are monotonic seconds. Callable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, _JobEntry] = {}  # longest silent first
        self._credit: dict[int, tuple[float, float]] = {}  # posts that a user may still send, as of a time

    def admit(self, uid: int, now: float) -> bool:
        """Return whether this user may send one more message now, and count it."""
        with self._lock:
            credit, since = self._credit.pop(uid, (POSTS_BURST, now))
            credit = min(POSTS_BURST, credit + (now - since) * POSTS_PER_S)
            self._credit[uid] = max(0.0, credit - 1.0) if credit >= 1.0 else credit, now
            while len(self._credit) > USERS_MAX:
                del self._credit[next(iter(self._credit))]
            return credit >= 1.0

    def put(self, uid: int, job: str, swaps: tuple[JobSwap, ...], now: float) -> None:
        """Replace what is known of a job."""
        with self._lock:
            self._jobs.pop(job, None)
            self._forget(now)
            users = Counter(entry.uid for entry in self._jobs.values())
            if users[uid] >= JOBS_PER_USER_MAX:
                self._drop_oldest(uid)
            elif len(self._jobs) >= JOBS_MAX:
                self._drop_oldest(users.most_common(1)[0][0])
            self._jobs[job] = _JobEntry(uid, now, swaps)

    def owner(self, job: str, now: float) -> int | None:
        """Return the user who last spoke for a job, if the launcher is still heard from."""
        with self._lock:
            self._forget(now)
            return self._jobs[job].uid if job in self._jobs else None

    def current(self, now: float) -> tuple[JobSwap, ...]:
        """Return the swaps of all jobs whose launcher is still heard from."""
        with self._lock:
            self._forget(now)
            return tuple(swap for entry in self._jobs.values() for swap in entry.swaps)

    def _forget(self, now: float) -> None:
        self._jobs = {job: entry for job, entry in self._jobs.items() if now - entry.at <= KEPT_S}

    def _drop_oldest(self, uid: int) -> None:
        del self._jobs[next(job for job, entry in self._jobs.items() if entry.uid == uid)]

"""When the ranks of a generation go on in the next one though none is lost. Pure.

Either the launcher has asked them to pause at the end of a step, because the job can grow; or they could not connect, or a
collective has failed, while all of them live.
"""

from __future__ import annotations

from collections.abc import Collection

ASK_AGAIN_SECONDS = 660.0  # above what the ranks' agreement may take, which is bounded by their steps
RESUMES_MAX = 3  # in a row without a step: what fails each time is no accident
PAUSE_SECONDS = 10.0  # for the last rank to pause after the first one has: all do so at the end of one step


class Growth:
    """Of the newest generation."""

    def __init__(self) -> None:
        self._count = 0
        self._asked_at: float | None = None
        self._paused: set[int] = set()
        self._paused_at = 0.0
        self._in_vain = 0  # generations in a row that were formed again and have done no step

    def note_advanced(self) -> None:
        """A step of the newest generation is done."""
        self._in_vain = 0

    def clear(self) -> None:
        """There is a new generation."""
        self._asked_at, self._paused = None, set()

    def request(self, now: float, generation: int, *, possible: bool) -> str:
        """The name of a new request to the ranks to pause; empty where none is due."""
        due = self._asked_at is None or now - self._asked_at > ASK_AGAIN_SECONDS
        if not possible or not due:
            return ""
        self._asked_at = now
        self._count += 1
        return f"grow-{generation}-{self._count}"

    def note_paused(self, member: int, now: float) -> None:
        """A rank has left the generation at the end of a step, and waits for the next one."""
        if not self._paused:
            self._paused_at = now
        self._paused.add(member)

    def resumes(self, now: float, members: Collection[int]) -> bool:
        """Whether the next generation is to be formed now: all `members` have paused, or the others are overdue."""
        ready = set(members) <= self._paused or now - self._paused_at > PAUSE_SECONDS
        if not self._paused or not ready or self._in_vain >= RESUMES_MAX:
            return False
        self._in_vain += 1
        return True

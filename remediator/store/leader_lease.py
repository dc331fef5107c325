"""The lease: until when a term may start outside effects, from the times of queries and answers. Pure.

A leader acts only while its lease was confirmed less than `LEASE_S` ago, counted from its *query*; a new one waits as
long before its first effect. `docs/internals/models.md` describes how every order of events was checked.
"""

from __future__ import annotations

from typing import NamedTuple

LEASE_S = 2.0
NEVER = float("-inf")


class LeaderLease(NamedTuple):
    """One process's claim, in seconds of a clock that runs on in suspend; NEVER: it may not act."""

    epoch: int = 0
    confirmed: float = NEVER  # when the last answered query was sent
    may_begin: float = NEVER  # no effect before

    @classmethod
    def granted(cls, epoch: int, asked: float, answered: float) -> LeaderLease:
        """Start a term. The previous leader may have renewed its lease right up to the answer."""
        return cls(epoch, asked, answered + LEASE_S if epoch > 1 else NEVER)

    def heard(self, asked: float, epoch: int, *, held: bool) -> LeaderLease | None:
        """Update after an answer: is the lock held, and which epoch is it? None: this term has ended."""
        if epoch != self.epoch:
            return None
        return self._replace(confirmed=asked) if held else self

    def may_act(self, now: float) -> bool:
        """Whether an outside effect may begin now."""
        return self.may_begin <= now < self.confirmed + LEASE_S

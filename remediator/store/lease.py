"""Until when a term may begin outside effects: what was asked, when, and what was answered. Pure.

A leader acts only while its lead was confirmed less than `LEASE_S` ago, by when it had *asked*; a new one lets as much time pass
before its first effect. `docs/internals/models.md` tells how every order of events was tried.
"""

from __future__ import annotations

from typing import NamedTuple

LEASE_S = 2.0
NEVER = float("-inf")


class Lease(NamedTuple):
    """One process's claim. Times are seconds of one clock that goes on while the machine sleeps; NEVER: it may not act."""

    epoch: int = 0
    confirmed: float = NEVER  # when what was answered last had been asked
    may_begin: float = NEVER  # no effect before

    @classmethod
    def granted(cls, epoch: int, asked: float, answered: float) -> Lease:
        """A term that has begun. Whoever led before may have confirmed its own right up to the answer."""
        return cls(epoch, asked, answered + LEASE_S if epoch > 1 else NEVER)

    def heard(self, asked: float, epoch: int, *, held: bool) -> Lease | None:
        """After an answer of whatever keeps the lock: is the lead held, and which epoch is it? None: this term is over."""
        if epoch != self.epoch:
            return None
        return self._replace(confirmed=asked) if held else self

    def may_act(self, now: float) -> bool:
        """Whether an outside effect may begin now."""
        return self.may_begin <= now < self.confirmed + LEASE_S

"""Replicas that break one rule of leading each. What the model finds wrong with them says what the rule is for."""

from __future__ import annotations

from remediator.store.leader_lease import NEVER, LeaderLease
from tests.models.leadership import DOWN, Answer, Bounds, Leading, Replica


class ActsAtOnce(Leading):
    name = "a new leader does not wait for the lease before it to end"

    def granted(self, answer: Answer) -> LeaderLease:
        return super().granted(answer)._replace(may_begin=NEVER)


class CountsFromTheAnswer(Leading):
    name = "a lease counts from when the answer came, not from when it was asked for"

    def heard(self, lease: LeaderLease, answer: Answer) -> LeaderLease | None:
        return super().heard(lease, answer._replace(asked=0.0))


class BelievesForEver(Leading):
    name = "who leads acts until it hears otherwise"

    def may_act(self, replica: Replica) -> bool:
        return replica.lease.epoch > 0 and replica.lease.may_begin == NEVER


class HearsNoEpoch(Leading):
    name = "who has the lock again goes on, whoever led meanwhile"

    def heard(self, lease: LeaderLease, answer: Answer) -> LeaderLease | None:
        return super().heard(lease, answer._replace(epoch=lease.epoch))


class WritesUnfenced(Leading):
    name = "a commit does not compare the epoch"

    def may_write(self, _epoch_kept: int, _epoch: int) -> bool:
        return True


class KeepsTheLock(Leading):
    name = "the session of a dead leader keeps the lock"

    def killed(self, replica: Replica) -> Replica:
        return Replica("dead for good" if replica.holds else DOWN, holds=replica.holds)


BROKEN: tuple[Leading, ...] = (
    ActsAtOnce(Bounds(replicas=2)),
    CountsFromTheAnswer(Bounds(replicas=2)),
    BelievesForEver(Bounds(replicas=2)),
    HearsNoEpoch(Bounds(replicas=2)),
    WritesUnfenced(Bounds(replicas=2)),
    KeepsTheLock(Bounds(replicas=2, losses=0)),
)

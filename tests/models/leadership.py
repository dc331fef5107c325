"""Who leads, every order of events: `remediator.store.leader_lease` decides, and the fence is the store's own statement.

Times are seconds before now. What is the model's own: the lock and its sessions, words that are under way for as long as they
like, and who asks when (`Leadership.campaign`, `begin_term` and `_keep`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import create_engine

from remediator.store import table_schema
from remediator.store.database import StoreError
from remediator.store.database_metadata import begin_write, set_metadata
from remediator.store.leader_lease import LEASE_S, NEVER, LeaderLease
from tests.models.exploration import Step

STANDBY, LOCKED, RAISING, LEADING, OVER, DOWN = "standby", "locked", "raising", "leading", "over", "down"


class Answer(NamedTuple):
    """What the lock said, on its way to who asked."""

    asked: float
    epoch: int
    held: bool


class Replica(NamedTuple):
    """One process. `holds` is the server's word: its session has the lock."""

    role: str = STANDBY
    holds: bool = False
    lease: LeaderLease = LeaderLease()
    asked: float = NEVER  # under way to the lock
    answers: tuple[Answer, ...] = ()  # under way from it, one at most


class World(NamedTuple):
    """All replicas and what the database holds."""

    replicas: tuple[Replica, ...]
    epoch: int = 0  # in the database
    written: int = 0  # the epoch of the last commit
    begun: int = 0  # the epoch of the last effect
    losses: int = 0
    crashes: int = 0


class Bounds(NamedTuple):
    """How much of everything there is."""

    replicas: int = 3
    losses: int = 1  # of a session, its owner not knowing
    crashes: int = 1


@functools.cache
def lets_write(epoch_kept: int, epoch: int) -> bool:
    """Whether the store lets a term write: its own statement, asked of a database in memory."""
    engine = create_engine("sqlite://")
    try:
        table_schema.meta.create(engine)
        with engine.begin() as db:
            set_metadata(db, "epoch", str(epoch_kept))
            begin_write(db, epoch)
    except StoreError:
        return False
    finally:
        engine.dispose()
    return True


class Leading:
    """Replicas that take turns. Its methods are the rules; each broken one changes one of them."""

    name = "as it is"

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def initial(self) -> World:
        return World((Replica(),) * self.bounds.replicas)

    def canonical(self, world: World) -> World:
        return world._replace(replicas=tuple(sorted(world.replicas)))

    def steps(self, world: World) -> Iterator[Step[World]]:
        later = world._replace(replicas=tuple(map(_a_second_later, world.replicas)))
        if later != world:
            yield Step("a second passes", later)
        for number, replica in enumerate(world.replicas):
            yield from self._campaigns(world, number, replica)
            if replica.role == LEADING:
                yield from self._confirms(world, number, replica)
                yield from self._acts(world, number, replica)
            yield from self._fails(world, number, replica)

    def _campaigns(self, world: World, number: int, replica: Replica) -> Iterator[Step[World]]:
        free = not any(each.holds for each in world.replicas)
        if replica.role in (OVER, DOWN):
            yield Step(f"replica {number} starts anew", _with(world, number, Replica()))
        elif replica.role == STANDBY and free:
            yield Step(
                f"replica {number} gets the lock", _with(world, number, replica._replace(role=LOCKED, holds=True))
            )
        elif replica.role == LOCKED:
            asks = replica._replace(role=RAISING, asked=0.0)
            yield Step(f"replica {number} asks for a new epoch", _with(world, number, asks))
        elif replica.role == RAISING and replica.answers:
            answer = replica.answers[0]
            leads = replica._replace(role=LEADING, lease=self.granted(answer), answers=())
            yield Step(f"replica {number} hears that epoch {answer.epoch} is its own", _with(world, number, leads))
        elif replica.role == RAISING and replica.holds:
            epoch = world.epoch + 1
            told = replica._replace(asked=NEVER, answers=(Answer(replica.asked, epoch, held=True),))
            yield Step(f"epoch {epoch} begins for replica {number}", _with(world._replace(epoch=epoch), number, told))
        elif replica.role == RAISING:
            yield Step(f"replica {number} hears that its session is gone", _with(world, number, Replica()))

    def _confirms(self, world: World, number: int, replica: Replica) -> Iterator[Step[World]]:
        if replica.answers:
            answer = replica.answers[0]
            lease = self.heard(replica.lease, answer)
            after = replica._replace(answers=(), lease=lease) if lease else Replica(OVER)
            words = "it is confirmed" if answer.held else "the lead is in doubt"
            text = f"replica {number} hears: {words if lease else 'its term is over'}"
            yield Step(text, _with(world, number, after))
        elif replica.asked == NEVER:
            yield Step(f"replica {number} asks whether it leads", _with(world, number, replica._replace(asked=0.0)))
        else:
            holds = not any(each.holds for other, each in enumerate(world.replicas) if other != number)
            answer = Answer(replica.asked, world.epoch, holds)
            told = replica._replace(holds=holds, asked=NEVER, answers=(answer,))
            yield Step(f"the lock answers replica {number}: epoch {world.epoch}", _with(world, number, told))

    def _acts(self, world: World, number: int, replica: Replica) -> Iterator[Step[World]]:
        epoch = replica.lease.epoch
        if self.may_write(world.epoch, epoch) and world.written != epoch:
            wrong = f"epoch {epoch} writes after epoch {world.written}" if epoch < world.written else ""
            yield Step(f"replica {number} writes in epoch {epoch}", world._replace(written=epoch), wrong=wrong)
        if self.may_act(replica) and world.begun != epoch:
            wrong = f"an effect of epoch {epoch} begins after one of epoch {world.begun}" if epoch < world.begun else ""
            yield Step(f"replica {number} begins an effect of epoch {epoch}", world._replace(begun=epoch), wrong=wrong)

    def _fails(self, world: World, number: int, replica: Replica) -> Iterator[Step[World]]:
        if replica.holds and world.losses < self.bounds.losses:
            lost = _with(world, number, replica._replace(holds=False))._replace(losses=world.losses + 1)
            yield Step(f"the server ends the session of replica {number}, which does not notice", lost, world=True)
        if replica.role != DOWN and world.crashes < self.bounds.crashes:
            down = _with(world, number, self.killed(replica))._replace(crashes=world.crashes + 1)
            yield Step(f"replica {number} is killed", down, world=True)

    def killed(self, _replica: Replica) -> Replica:
        """Its session ends with it."""
        return Replica(DOWN)

    def granted(self, answer: Answer) -> LeaderLease:
        return LeaderLease.granted(answer.epoch, answer.asked, 0.0)

    def heard(self, lease: LeaderLease, answer: Answer) -> LeaderLease | None:
        return lease.heard(answer.asked, answer.epoch, held=answer.held)

    def may_act(self, replica: Replica) -> bool:
        return replica.lease.may_act(0.0)

    def may_write(self, epoch_kept: int, epoch: int) -> bool:
        return lets_write(epoch_kept, epoch)

    def wrong(self, world: World) -> str:
        acting = [n for n, each in enumerate(world.replicas) if each.role == LEADING and self.may_act(each)]
        return f"replicas {acting[0]} and {acting[1]} may act at the same time" if len(acting) > 1 else ""

    def ended(self, world: World) -> bool:
        """The newest term has written and acted, and knows that it leads."""
        return any(
            each.role == LEADING and each.holds and each.lease.epoch == world.epoch == world.written == world.begun
            for each in world.replicas
        )


def _with(world: World, number: int, replica: Replica) -> World:
    return world._replace(replicas=(*world.replicas[:number], replica, *world.replicas[number + 1 :]))


def _a_second_later(replica: Replica) -> Replica:
    lease = replica.lease
    moved = lease._replace(
        confirmed=_older(lease.confirmed), may_begin=lease.may_begin - 1.0 if lease.may_begin > 1.0 else NEVER
    )
    answers = tuple(each._replace(asked=_older(each.asked, LEASE_S)) for each in replica.answers)
    return replica._replace(lease=moved, asked=_older(replica.asked, LEASE_S), answers=answers)


def _older(at: float, limit: float = NEVER) -> float:
    """What is as old as a lease is as good as older."""
    if at == NEVER:
        return NEVER
    return at - 1.0 if at - 1.0 > -LEASE_S else -limit if limit != NEVER else NEVER

"""Clusters that break one rule of acting each. What the model finds wrong with them says what the rule is for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from remediator.model.pipeline_inputs import AnyInput, FindingsReported
from remediator.model.scheduler_hold import ActionOutcome, SchedulerNodeState
from tests.models.actions import Cluster
from tests.models.cluster_world import Bounds, Call, Replica, World, with_replica
from tests.models.controller_model import Rows
from tests.models.exploration import Step
from vocabulary.order import Order


class ActsBeforeTheCommit(Cluster):
    name = "an effect begins before the intent is written"

    def _decides(
        self, world: World, number: int, item: AnyInput, text: str, *, always: bool = False
    ) -> Iterator[Step[World]]:
        for step in super()._decides(world, number, item, text, always=always):
            yield step
            published = step.state.replicas[number]
            if published.epoch and published.memory != world.replicas[number].memory:
                yield Step(f"{text}, which is published and not written yet", with_replica(world, number, published))


class ActsWithoutALease(Cluster):
    name = "who was deposed acts until it hears of it"

    def may_begin(self, _world: World, replica: Replica) -> bool:
        return replica.epoch > 0


class NamesOrdersByTerm(Cluster):
    name = "each term gives an order an id of its own"

    def orders(self, known: Rows, node: str, now: float, replica: Replica) -> tuple[Order, ...]:
        return tuple(replace(o, id=f"{o.id}@{replica.epoch}") for o in super().orders(known, node, now, replica))


class OverridesPeople(Cluster):
    name = "the scheduler is not asked whose a node is before it is changed"

    def before(self, _verb: str, _hold: SchedulerNodeState) -> ActionOutcome | None:
        return None


class AcknowledgesBeforeTheCommit(Cluster):
    name = "a report is acknowledged before it is written"

    def _decides(
        self, world: World, number: int, item: AnyInput, text: str, *, always: bool = False
    ) -> Iterator[Step[World]]:
        yield from super()._decides(world, number, item, text, always=always)
        reports = isinstance(item, FindingsReported) and bool(item.active)
        if reports and not any("forgotten" in word for word in world.words) and self.bounds.crashes > world.crashes:
            died = with_replica(world, number, Replica())._replace(crashes=world.crashes + 1, words=("forgotten",))
            yield Step(f"{text} and is answered; replica {number} is killed before the commit", died, world=True)

    def _report(self, world: World, at: int, known: Rows, now: float) -> AnyInput:
        answered = world._replace(faulty=(False,) * len(world.faulty)) if "forgotten" in world.words else world
        return super()._report(answered, at, known, now)


class ForgetsWhoIsOut(Cluster):
    name = "a new term does not count the nodes that the one before took out"

    def loaded(self, _world: World) -> int:
        return self.centre.loaded(self.centre.rows_of(self.centre.first(self.nodes)))


class CallsWithoutEnd(Cluster):
    name = "a call to the scheduler has no deadline"

    def under_way(self, _world: World) -> bool:
        return False


class TakesLateCalls(CallsWithoutEnd):
    name = "a call to the scheduler has no deadline, and may undo what was begun later"

    def overtakes(self, _earlier: Call, _later: Call) -> bool:
        return False


BROKEN: tuple[Cluster, ...] = (
    ActsBeforeTheCommit(Bounds(crashes=1)),
    ActsWithoutALease(Bounds(losses=1)),
    NamesOrdersByTerm(Bounds(crashes=1)),
    OverridesPeople(Bounds(words=("drain",))),
    AcknowledgesBeforeTheCommit(Bounds(crashes=1)),
    ForgetsWhoIsOut(Bounds(nodes=2, faulty=2, crashes=1)),
    CallsWithoutEnd(Bounds(crashes=1)),
)

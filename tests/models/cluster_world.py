"""What a state of the model of actions is: replicas, calls under way, the scheduler, nodes, and how often what went wrong."""

from __future__ import annotations

from typing import NamedTuple

from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState

A_WHILE_S = 100.0
CORDON, RESUME = "cordon", "resume"


class Call(NamedTuple):
    """A change that the scheduler was asked for. Nobody waits for it any more once its term is gone."""

    action: str
    node: str
    verb: str
    epoch: int
    result: str = ""  # as the caller will hear it
    overtaken: bool = False  # the opposite was begun later, and is done


class Replica(NamedTuple):
    """One process: idle (epoch 0), or in a term, whether or not that is over."""

    epoch: int = 0
    memory: int = 0
    seen: tuple[float, tuple[str, ...]] | tuple[()] = ()  # what the scheduler said, not yet decided upon


class World(NamedTuple):
    """Everything there is, by numbers and names. `holds` are the owners that the scheduler knows, node by node."""

    replicas: tuple[Replica, ...]
    rows: int
    holds: tuple[str, ...]
    faulty: tuple[bool, ...]
    epoch: int = 1
    begun: int = 0
    calls: tuple[Call, ...] = ()
    obeyed: tuple[str, ...] = ()  # orders that nodes carried out
    whiles: int = 0
    crashes: int = 0
    losses: int = 0
    failures: int = 0
    words: tuple[str, ...] = ()  # said so far


class Bounds(NamedTuple):
    """How much of everything there is."""

    nodes: int = 1
    faulty: int = 1
    replicas: int = 2
    crashes: int = 0
    losses: int = 0  # of the lead, its owner not knowing
    failures: int = 0  # of the scheduler: no answer, done or not
    words: tuple[str, ...] = ()
    prompt: bool = False  # a call of a term has ended before a later one begins to change the same node
    whiles: int = 12


def with_replica(world: World, number: int, replica: Replica) -> World:
    """With another replica in that place. What was answered to one that ends there is heard by nobody."""
    before = world.replicas[number].epoch
    over = before != replica.epoch
    calls = tuple(call for call in world.calls if not (over and call.result and call.epoch == before))
    return world._replace(replicas=(*world.replicas[:number], replica, *world.replicas[number + 1 :]), calls=calls)


def without(calls: tuple[Call, ...], over: Call) -> tuple[Call, ...]:
    at = calls.index(over)
    return (*calls[:at], *calls[at + 1 :])


def answered(world: World, call: Call, result: str, *, heard: bool) -> World:
    rest = without(world.calls, call)
    return world._replace(calls=(*rest, call._replace(result=result)) if heard else rest)


def opposite(earlier: Call, later: Call) -> bool:
    return (
        earlier.node == later.node and earlier.epoch < later.epoch and earlier.verb != later.verb and not earlier.result
    )


def hold_of(node: str, owner: str) -> SchedulerNodeState:
    free = owner == HoldOwner.NOBODY.value
    return SchedulerNodeState(
        node, schedulable=free, drained=not free, owner=HoldOwner(owner), reason="" if free else owner
    )


def short(order: str) -> str:
    """An order's id without its incident."""
    return order.partition(".")[2]


def intent(order: str) -> str:
    """The action that an order is of: its id, unless a broken term has added to it."""
    return order.partition("@")[0]

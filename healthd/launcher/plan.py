"""What to do next, given how the ranks ended and what the nodes say of themselves. Pure; every answer carries its reason."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from healthd.trainer.exits import Exit

REQUEUE_EXIT = 75  # EX_TEMPFAIL: try again later, elsewhere
_ORDERED = (Exit.CONDEMNED, Exit.RELAUNCH, Exit.ABORTED)


class Fitness(str, enum.Enum):
    """What a node's daemon says of taking work. Unknown is not good, but it is not a verdict against the node."""

    FIT = "fit"
    UNKNOWN = "unknown"
    UNFIT = "unfit"


class Gate(str, enum.Enum):
    """How much a node must prove before ranks start on it."""

    PREFER = "prefer"  # fit nodes first, silent ones when there is nothing better
    REQUIRE = "require"  # fit nodes only
    OFF = "off"  # nobody is asked


class NodeVerdict(NamedTuple):
    """A node's answer at the gate."""

    node: str
    fitness: Fitness
    reason: str = ""


class RankEnd(NamedTuple):
    """How one rank ended. `code` as of a shell's child: negative for a signal, None where nobody knows (its node is lost)."""

    rank: int
    node: str
    code: int | None
    killed: bool = False  # by the launcher, because it stayed after its peers had left


class Outcome(str, enum.Enum):
    """What an attempt came to."""

    DONE = "done"
    ORDERED = "ordered"  # the ranks left because they were told to
    LOST = "lost"  # a node vanished
    CRASHED = "crashed"
    NEVER_AGAIN = "never_again"


class Result(NamedTuple):
    """An attempt in one line."""

    outcome: Outcome
    condemned: frozenset[str]  # nodes that must not be used again
    code: int  # what the launcher answers if it stops here
    why: str


class Choice(NamedTuple):
    """The nodes of an attempt, or None and why there are too few."""

    nodes: tuple[str, ...] | None
    why: str


class Move(str, enum.Enum):
    """The launcher's next step."""

    START = "start"
    REQUEUE = "requeue"
    STOP = "stop"


class Limits(NamedTuple):
    """How often to try. Crashes count in a row; an ordered leave in between starts the count anew."""

    restarts: int = 20
    crashes: int = 3


class History(NamedTuple):
    """What happened so far."""

    restarts: int = 0
    crashes: int = 0
    excluded: frozenset[str] = frozenset()

    def after(self, result: Result) -> History:
        """One attempt later."""
        crashed = result.outcome is Outcome.CRASHED
        return History(self.restarts + 1, self.crashes + 1 if crashed else 0, self.excluded | result.condemned)


def judge(ends: Sequence[RankEnd]) -> Result:
    """What an attempt came to, by how its ranks ended (all of them, in any order)."""
    codes = {end.code for end in ends}
    if codes == {Exit.DONE}:
        return Result(Outcome.DONE, frozenset(), 0, f"all {len(ends)} ranks are done")
    if Exit.NEVER_AGAIN in codes:
        ranks = [end.rank for end in ends if end.code == Exit.NEVER_AGAIN]
        return Result(Outcome.NEVER_AGAIN, frozenset(), int(Exit.NEVER_AGAIN), f"never again, says rank {_list(ranks)}")
    if codes & set(_ORDERED):
        condemned = {end.node for end in ends if end.code == Exit.CONDEMNED or end.killed}
        code = max(int(each) for each in codes & set(_ORDERED) if each is not None)
        return Result(Outcome.ORDERED, frozenset(condemned), code, _ordered_text(ends, condemned))
    if None in codes:
        lost = {end.node for end in ends if end.code is None}
        return Result(Outcome.LOST, frozenset(lost), REQUEUE_EXIT, f"lost {_list(lost)}")
    first = next(end for end in ends if end.code and not end.killed) if _crashed(ends) else ends[0]
    code = 1 if first.code is None else first.code if first.code > 0 else 128 - first.code
    return Result(Outcome.CRASHED, frozenset(), code, f"rank {first.rank} on {first.node} {_code_text(first)}")


def choose(
    allocation: Sequence[str], wanted: int, excluded: Collection[str], verdicts: Sequence[NodeVerdict], gate: Gate
) -> Choice:
    """The nodes to start on: fit before silent, else as the allocation lists them.

    Args:
        allocation: all nodes at hand, in the scheduler's order.
        wanted: how many to use.
        excluded: nodes that already failed this job.
        verdicts: the gate's answers; a node without one is unknown.
        gate: what they must say.
    """
    fitness = {verdict.node: verdict.fitness for verdict in verdicts}
    if gate is Gate.OFF:
        fitness = dict.fromkeys(allocation, Fitness.FIT)
    usable = (Fitness.FIT,) if gate is Gate.REQUIRE else (Fitness.FIT, Fitness.UNKNOWN)
    ranked = [
        node
        for wish in usable
        for node in allocation
        if node not in excluded and fitness.get(node, Fitness.UNKNOWN) is wish
    ]
    if len(ranked) < wanted:
        refused = [node for node in allocation if node not in ranked]
        return Choice(None, f"{wanted} nodes needed, {len(ranked)} usable of {len(allocation)}; not {_list(refused)}")
    chosen = set(ranked[:wanted])
    nodes = tuple(node for node in allocation if node in chosen)
    silent = [node for node in nodes if fitness.get(node, Fitness.UNKNOWN) is not Fitness.FIT]
    return Choice(nodes, f"no word of {_list(silent)}" if silent else "all fit")


def next_move(result: Result, history: History, limits: Limits) -> tuple[Move, str]:
    """What to do after an attempt; `history` includes it already."""
    if result.outcome in (Outcome.DONE, Outcome.NEVER_AGAIN):
        return Move.STOP, result.why
    if history.crashes >= limits.crashes:
        return Move.STOP, f"{history.crashes} crashes in a row: {result.why}"
    if history.restarts > limits.restarts:
        return Move.STOP, f"all {limits.restarts} restarts are used up: {result.why}"
    return Move.START, result.why


def _ordered_text(ends: Sequence[RankEnd], condemned: Collection[str]) -> str:
    aborted = sum(end.code == Exit.ABORTED for end in ends)
    killed = sorted({end.node for end in ends if end.killed})
    parts = [f"{aborted} ranks aborted" if aborted else "all saved and left"]
    if killed:
        parts.append(f"had to kill what stayed on {_list(killed)}")
    if condemned:
        parts.append(f"without {_list(condemned)} from now on")
    return "; ".join(parts)


def _crashed(ends: Sequence[RankEnd]) -> bool:
    return any(end.code and not end.killed for end in ends)


def _code_text(end: RankEnd) -> str:
    if end.code is not None and end.code < 0:
        return f"was ended by signal {-end.code}"
    return f"exited with {end.code}"


def _list(items: Collection[object]) -> str:
    return ", ".join(sorted(map(str, items))) or "none"

"""The hang detector's input: each rank's calls, from flight recorder dumps, beacons or tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Transfer(msgspec.Struct, frozen=True):
    """One message between two ranks of a point-to-point call. `elements`: how many numbers; `dtype` may be empty."""

    source: int
    target: int
    elements: int = 0
    dtype: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a rank.

    `number` counts a group's collectives from the same start on all ranks; `order` counts the rank's own calls. `state`
    is scheduled, started, completed, pending (scheduled or started), or ended: no rank waits for it, complete
    or given up. `inputs` and `outputs` are elements per tensor. `transfers` makes it a point-to-point call, which
    collectives' numbers skip.
    """

    rank: int
    group: str
    number: int
    name: str
    order: int
    state: str
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    created_ns: int = 0
    timed_out: bool = False

    @property
    def open(self) -> bool:
        """Whether it is still waited for, according to its own record."""
        return self.state in ("scheduled", "started", "pending")


class Group(msgspec.Struct, frozen=True):
    """Ranks that call collectives together. `known`: `members` is complete; otherwise it holds those seen calling."""

    name: str
    description: str = ""
    members: tuple[int, ...] = ()
    known: bool = True

    @property
    def label(self) -> str:
        """A name for display."""
        return self.name + (f" ({self.description})" if self.description not in ("", "undefined", self.name) else "")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known.

    `recorded`: ranks with a record. `entered`: the highest number a rank is known to have called in a group whose calls
    are no longer among the operations. `whole`: ranks whose record begins with their first call.
    """

    operations: Sequence[Operation]
    groups: Mapping[str, Group]
    recorded: frozenset[int]
    everybody: tuple[int, ...] = ()
    entered: Mapping[tuple[int, str], int] = {}
    whole: frozenset[int] = frozenset()


class StuckCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is stuck.

    `waiting` are inside; `absent` have not entered; `odd` called something else than the others (all, without a
    majority); `idle` have it queued behind other work on their GPU; `left` came out, of which `later` wait in a later
    call of the group. `orders`: each waiting rank's position of it in its own sequence of calls.
    """

    group: str
    number: int
    name: str
    waiting: tuple[int, ...]
    absent: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    left: bool = False
    later: tuple[int, ...] = ()
    timed_out: tuple[int, ...] = ()
    detail: str = ""
    orders: Mapping[int, int] = {}

    @property
    def missing(self) -> frozenset[int]:
        """The ranks that those inside wait for: not called, or called and still queued on the GPU."""
        return frozenset((*self.absent, *self.idle))


class HangVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: none, dead_rank, stuck_compute, mismatched_collectives, network. `victims` wait because of others.

    `root` is the call that the culprits block, `stuck` all stuck calls, `silent` the ranks without a record.
    """

    kind: str
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    root: StuckCall | None = None
    stuck: tuple[StuckCall, ...] = ()
    silent: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()

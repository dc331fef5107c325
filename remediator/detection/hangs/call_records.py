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

    `recorded`: ranks with a record. `entered` and `left`: the highest number that a rank is known to have called, and to
    have come out of, in a group, from its counters. `whole`: ranks whose record begins with their first call. `untimed`:
    groups whose records do not show what the GPUs have begun. `moving`: ranks made calls until their records were
    written, so that open calls are no sign of a hang.
    """

    operations: Sequence[Operation]
    groups: Mapping[str, Group]
    recorded: frozenset[int]
    everybody: tuple[int, ...] = ()
    entered: Mapping[tuple[int, str], int] = {}
    left: Mapping[tuple[int, str], int] = {}
    whole: frozenset[int] = frozenset()
    untimed: frozenset[str] = frozenset()
    moving: bool = False


class StuckCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is stuck.

    `waiting` are inside; `absent` have not entered; `odd` called something else than the others (all, without a
    majority); `idle` have it queued behind other work on their GPU. `unfinished` did not come out of earlier calls of
    the group, or of this one, that `finished` others came out of: how many calls, by rank. `orders`: each waiting rank's
    position of the call in its own sequence of calls.
    """

    group: str
    number: int
    name: str
    waiting: tuple[int, ...]
    absent: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    unfinished: Mapping[int, int] = {}
    finished: int = 0
    timed_out: tuple[int, ...] = ()
    detail: str = ""
    orders: Mapping[int, int] = {}

    @property
    def missing(self) -> frozenset[int]:
        """The ranks that those inside wait for: not called, called and still queued, or still in an earlier call."""
        return frozenset((*self.absent, *self.idle, *self.unfinished))


class HangVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: none, unfinished_call, dead_rank, stuck_compute, mismatched_collectives, network, undetermined.

    `victims` wait because of others.
    `root` is the call that the culprits block, `stuck` all stuck calls, `silent` the ranks without a record.
    """

    kind: str
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    root: StuckCall | None = None
    stuck: tuple[StuckCall, ...] = ()
    silent: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()

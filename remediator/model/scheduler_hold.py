"""A scheduler's view of a node, and its answer to a change."""

from __future__ import annotations

import enum

import msgspec

REASON_PREFIX = "gpu-healthd:"  # marks our own holds in a scheduler's reason field

THEIR_PREFIX = "by "  # before the name of the operator in whose name we place a hold


class HoldOwner(str, enum.Enum):
    """Who placed a hold."""

    NOBODY = "nobody"
    US = "us"
    OPERATOR = "operator"
    SCHEDULER = "scheduler"  # the scheduler itself, e.g. not responding


class SchedulerNodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as its scheduler sees it. `schedulable` is None when it could not be queried: unknown is not good."""

    node: str
    schedulable: bool | None
    drained: bool = False  # no new work, and none left
    owner: HoldOwner = HoldOwner.NOBODY
    reason: str = ""
    jobs: tuple[str, ...] = ()
    evictable: bool = False  # running work had its time to leave, and the site wants it evicted
    known: bool = True  # False: the scheduler answered, and has no such node
    set_aside: bool = False  # idle but not available: reserved, or some of its GPUs are not


class ActionResult(str, enum.Enum):
    """How an attempt ended. FAILED may be retried; REFUSED and UNKNOWN (no such node) are final."""

    DONE = "done"
    ALREADY = "already"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"


class ActionOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one attempt, with a sentence for the audit log. `untold`: done, but there was no receiver."""

    result: ActionResult
    detail: str = ""
    untold: bool = False

"""What a scheduler says of a node, and what it answers when asked to change it."""

from __future__ import annotations

import enum

import msgspec

REASON_PREFIX = "gpu-healthd:"  # how we recognise our own hand in a scheduler's reason field

THEIR_PREFIX = "by "  # before the name of a person in whose name we place a hold


class HoldOwner(str, enum.Enum):
    """Who placed a hold."""

    NOBODY = "nobody"
    US = "us"
    OPERATOR = "operator"
    SCHEDULER = "scheduler"  # it took the node out by itself, e.g. not responding


class NodeHold(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as its scheduler sees it. `schedulable` is None when it could not be asked: unknown is not good."""

    node: str
    schedulable: bool | None
    drained: bool = False  # no new work, and none left
    owner: HoldOwner = HoldOwner.NOBODY
    reason: str = ""
    jobs: tuple[str, ...] = ()
    evictable: bool = False  # what runs there had its time to leave, and the site wants it asked to
    known: bool = True  # False: the scheduler answered, and has no such node
    set_aside: bool = False  # without work, yet not for the next job: reserved, or not all of its GPUs are to be had


class ActionResult(str, enum.Enum):
    """How an attempt to act ended. FAILED may be tried again; REFUSED and UNKNOWN (no such node) are answers."""

    DONE = "done"
    ALREADY = "already"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"


class ActionOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one attempt, with a sentence for the audit log. `untold`: done, and there was nobody to tell."""

    result: ActionResult
    detail: str = ""
    untold: bool = False

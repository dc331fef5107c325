"""What the doctor says of one thing."""

from __future__ import annotations

import enum

import msgspec


class State(str, enum.Enum):
    """How it stands."""

    GOOD = "good"
    ABSENT = "absent"  # not here, and nothing is broken for it: something goes unseen
    BAD = "bad"  # healthd cannot do its work, or would act on nothing


class Advice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing: what was found, why it matters, and what to do about it (both empty when it is good)."""

    part: str
    state: State
    found: str
    why: str = ""
    todo: str = ""


def good(part: str, found: str) -> Advice:
    """It is as it should be."""
    return Advice(part=part, state=State.GOOD, found=found)


def absent(part: str, found: str, why: str, todo: str = "") -> Advice:
    """It is not here; healthd works without it."""
    return Advice(part=part, state=State.ABSENT, found=found, why=why, todo=todo)


def bad(part: str, found: str, why: str, todo: str) -> Advice:
    """Something must be done."""
    return Advice(part=part, state=State.BAD, found=found, why=why, todo=todo)

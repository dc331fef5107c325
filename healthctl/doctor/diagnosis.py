"""What the doctor says of one thing."""

from __future__ import annotations

import enum

import msgspec


class DiagnosisState(str, enum.Enum):
    """How it stands."""

    GOOD = "good"
    ABSENT = "absent"  # not here, and nothing is broken for it: something goes unseen
    BAD = "bad"  # healthd cannot do its work, or would act on nothing


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing: what was found, why it matters, and what to do about it (both empty when it is good)."""

    part: str
    state: DiagnosisState
    found: str
    why: str = ""
    todo: str = ""


def diagnose_good(part: str, found: str) -> Diagnosis:
    """It is as it should be."""
    return Diagnosis(part=part, state=DiagnosisState.GOOD, found=found)


def diagnose_absent(part: str, found: str, why: str, todo: str = "") -> Diagnosis:
    """It is not here; healthd works without it."""
    return Diagnosis(part=part, state=DiagnosisState.ABSENT, found=found, why=why, todo=todo)


def diagnose_bad(part: str, found: str, why: str, todo: str) -> Diagnosis:
    """Something must be done."""
    return Diagnosis(part=part, state=DiagnosisState.BAD, found=found, why=why, todo=todo)

"""The result of one check of the doctor."""

from __future__ import annotations

import enum

import msgspec


class DiagnosisState(str, enum.Enum):
    """The state of the checked part."""

    GOOD = "good"
    ABSENT = "absent"  # not present; healthd works, with less coverage
    BAD = "bad"  # healthd cannot do its work, or would act without evidence


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result: what was found, why it matters, and what to do (both empty if good)."""

    part: str
    state: DiagnosisState
    found: str
    why: str = ""
    todo: str = ""


def diagnose_good(part: str, found: str) -> Diagnosis:
    """The part is as it should be."""
    return Diagnosis(part=part, state=DiagnosisState.GOOD, found=found)


def diagnose_absent(part: str, found: str, why: str, todo: str = "") -> Diagnosis:
    """The part is missing; healthd works without it."""
    return Diagnosis(part=part, state=DiagnosisState.ABSENT, found=found, why=why, todo=todo)


def diagnose_bad(part: str, found: str, why: str, todo: str) -> Diagnosis:
    """The part needs a fix."""
    return Diagnosis(part=part, state=DiagnosisState.BAD, found=found, why=why, todo=todo)

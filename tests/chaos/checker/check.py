"""All invariants over one finished run. Nothing in this folder imports anything of the product, nor of the runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.chaos.checker import (
    application_blamed,
    audit_chain,
    budget_kept,
    credentials_held,
    deeds_once,
    findings_kept,
    hands_respected,
    nothing_stuck,
    returned_tested,
    slowness_alone,
    training_goes_on,
    unknown_recorded,
)
from tests.chaos.checker.history import History

INVARIANTS: dict[str, Callable[[History], list[str]]] = {
    "1 findings kept": findings_kept.judge,
    "2 deeds once": deeds_once.judge,
    "3 budget kept": budget_kept.judge,
    "4 application blamed": application_blamed.judge,
    "5 returned tested": returned_tested.judge,
    "6 slowness alone": slowness_alone.judge,
    "7 credentials held": credentials_held.judge,
    "8 training goes on": training_goes_on.judge,
    "9 unknown recorded": unknown_recorded.judge,
    "nothing stuck": nothing_stuck.judge,
    "audit chain": audit_chain.judge,
    "hands respected": hands_respected.judge,
}


def check(place: Path) -> dict[str, list[str]]:
    """What is wrong, by invariant; an empty list where it holds."""
    history = History.read(place)
    return {name: judge(history) for name, judge in INVARIANTS.items()}

"""All invariants over one finished run. Nothing in this folder imports anything of the product, nor of the runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.chaos.checker import (
    application_blamed,
    audit_chain,
    budget_kept,
    credentials_held,
    findings_kept,
    operator_holds,
    returned_tested,
    settled_state,
    single_execution,
    straggler_isolation,
    swap_continuity,
    training_continuity,
    training_losses,
    unknown_recorded,
)
from tests.chaos.checker.history import History

INVARIANTS: dict[str, Callable[[History], list[str]]] = {
    "1 findings kept": findings_kept.judge,
    "2 deeds once": single_execution.judge,
    "3 budget kept": budget_kept.judge,
    "4 application blamed": application_blamed.judge,
    "5 returned tested": returned_tested.judge,
    "6 slowness alone": straggler_isolation.judge,
    "7 credentials held": credentials_held.judge,
    "8 training goes on": training_continuity.judge,
    "9 unknown recorded": unknown_recorded.judge,
    "losses kept": training_losses.judge,
    "swaps go on": swap_continuity.judge,
    "nothing stuck": settled_state.judge,
    "audit chain": audit_chain.judge,
    "hands respected": operator_holds.judge,
}


def check(place: Path) -> dict[str, list[str]]:
    """What is wrong, by invariant; an empty list where it holds."""
    history = History.read(place)
    return {name: judge(history) for name, judge in INVARIANTS.items()}

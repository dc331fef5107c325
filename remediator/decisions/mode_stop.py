"""An operator's stop: which planned actions, not yet started, it withholds. Pure.

A stop is an operator override to mode observe or recommend. It undoes nothing; withheld actions continue when the mode
is raised.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from remediator.decisions.operator_takeover import RESUME
from remediator.model.journal_records import Action
from remediator.model.override_records import MODE, ModeOverride, OperatorOverride
from remediator.model.plan_steps import NON_DISRUPTIVE, Mode, Verb
from vocabulary.order import TRAINER_ORDERS, OrderKind

LEFT_TO_PEOPLE = frozenset({Mode.RECOMMEND, Mode.OBSERVE})
GOES_ON = NON_DISRUPTIVE | {Verb.PREFLIGHT, Verb.RETURN_TO_SERVICE}  # returning a node to service is never blocked
# All ranks of a job get the same order: one without it would wait in its collective for those that left.
_GO_ON = (
    {verb.value for verb in GOES_ON} | {RESUME, OrderKind.RUN_PREFLIGHT.value} | {kind.value for kind in TRAINER_ORDERS}
)


class StopEffect(str, enum.Enum):
    """What a stop does to a planned action."""

    GOES_ON = "continues"
    WAITS = "starts no further attempt"
    UNLESS_FETCHED = "waits, unless the node already has the order"


def find_stop_order(operator_overrides: Mapping[str, OperatorOverride]) -> ModeOverride | None:
    """Return the operator override that stops new actions, if there is one."""
    said = operator_overrides.get(MODE)
    return said if isinstance(said, ModeOverride) and said.mode in LEFT_TO_PEOPLE else None


def stop_effect(action: Action) -> StopEffect:
    """Return the effect of a stop on an action. A manual action belongs to the operator and continues."""
    if not action.incident or action.verb in _GO_ON or action.began_at is not None:
        return StopEffect.GOES_ON
    return StopEffect.WAITS if action.order is None else StopEffect.UNLESS_FETCHED


def is_action_withheld(operator_overrides: Mapping[str, OperatorOverride], action: Action) -> bool:
    """Return whether a stop prevents an action from starting now."""
    return find_stop_order(operator_overrides) is not None and stop_effect(action) is not StopEffect.GOES_ON

"""What a person's stop keeps from being done, although it was planned before: what nobody has begun. Pure.

A stop is a person's word that the mode is observe or recommend. It takes nothing back: what waits goes on when the mode is raised.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from remediator.decisions.operator_takeover import RESUME
from remediator.model.journal_records import Action
from remediator.model.override_records import MODE, ModeOverride, Standing
from remediator.model.plan_steps import ONLY_TELLING, Mode, Verb
from vocabulary.order import TRAINER_ORDERS, OrderKind

LEFT_TO_PEOPLE = frozenset({Mode.RECOMMEND, Mode.OBSERVE})
GOES_ON = ONLY_TELLING | {Verb.PREFLIGHT, Verb.RETURN_TO_SERVICE}  # giving a node back is never kept from going on
# Of a job, every rank is told the same: one that is not would wait in its collective for those who left.
_GO_ON = (
    {verb.value for verb in GOES_ON} | {RESUME, OrderKind.RUN_PREFLIGHT.value} | {kind.value for kind in TRAINER_ORDERS}
)


class StopEffect(str, enum.Enum):
    """What a stop makes of an action that is planned."""

    GOES_ON = "goes on"
    WAITS = "begins no further attempt"
    UNLESS_FETCHED = "waits, unless the node has the order already"


def find_stop_order(standing: Mapping[str, Standing]) -> ModeOverride | None:
    """The person's word that nothing more is to begin, where there is one."""
    said = standing.get(MODE)
    return said if isinstance(said, ModeOverride) and said.mode in LEFT_TO_PEOPLE else None


def stop_effect(action: Action) -> StopEffect:
    """What a stop makes of it. What a person ordered by hand is theirs."""
    if not action.incident or action.verb in _GO_ON or action.began_at is not None:
        return StopEffect.GOES_ON
    return StopEffect.WAITS if action.order is None else StopEffect.UNLESS_FETCHED


def is_action_withheld(standing: Mapping[str, Standing], action: Action) -> bool:
    """Whether a stop keeps it from being begun now."""
    return find_stop_order(standing) is not None and stop_effect(action) is not StopEffect.GOES_ON

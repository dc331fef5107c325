"""Actions of which only the node differs, as one row: a page of equal rows hides the one that is not equal. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from remediator.model.views import ActionView

ALIKE_MIN = 3  # so many that say the same are said as one


class ActionGroup(msgspec.Struct, frozen=True):
    """An action, or several of which the first speaks for all."""

    actions: tuple[ActionView, ...]

    @property
    def first(self) -> ActionView:
        """The one that stands for all."""
        return self.actions[0]

    @property
    def nodes(self) -> int:
        """On how many nodes."""
        return len({action.node for action in self.actions})

    @property
    def attempts(self) -> int:
        """The most that one of them took."""
        return max(action.attempts for action in self.actions)

    @property
    def planned_at(self) -> float:
        """When the first was planned (UTC s)."""
        return min(action.planned_at for action in self.actions)

    @property
    def began_at(self) -> float | None:
        """When the first was begun on its node (UTC s); None where no node says so."""
        return min((action.began_at for action in self.actions if action.began_at is not None), default=None)

    @property
    def finished_at(self) -> float | None:
        """When the last one ended (UTC s); None while one is under way."""
        ends = [action.finished_at for action in self.actions if action.finished_at is not None]
        return max(ends) if len(ends) == len(self.actions) else None

    @property
    def deadline(self) -> float:
        """When the last one is given up (UTC s)."""
        return max(action.deadline for action in self.actions)

    @property
    def took(self) -> tuple[float, float]:
        """The least and the most that one of those that ended took (s)."""
        each = [a.finished_at - a.planned_at for a in self.actions if a.finished_at is not None]
        return min(each, default=0.0), max(each, default=0.0)


def group_actions(actions: Sequence[ActionView]) -> list[ActionGroup]:
    """The actions in their order; those alike stand where the first of them stood."""
    alike: dict[Hashable, list[ActionView]] = {}
    for action in actions:
        alike.setdefault(_action_grouping_key(action), []).append(action)
    rows: list[ActionGroup] = []
    told: set[Hashable] = set()
    for action in actions:
        said = _action_grouping_key(action)
        if len(alike[said]) < ALIKE_MIN:
            rows.append(ActionGroup((action,)))
        elif said not in told:
            rows.append(ActionGroup(tuple(alike[said])))
        told.add(said)
    return rows


def _action_grouping_key(action: ActionView) -> Hashable:
    """All that is shown of an action but its times; the node's own name does not make its outcome another."""
    detail = action.detail.replace(action.node, "")
    return action.verb, action.incident, action.why, action.state, action.lacks, action.attempts, detail

"""Groups actions that differ only in their node into one row, so that an exception stands out. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from remediator.model.views import ActionView

ALIKE_MIN = 3  # fewer similar actions stay separate rows


class ActionGroup(msgspec.Struct, frozen=True):
    """One action, or several similar ones, represented by the first."""

    actions: tuple[ActionView, ...]

    @property
    def first(self) -> ActionView:
        """The action that represents the group."""
        return self.actions[0]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len({action.node for action in self.actions})

    @property
    def attempts(self) -> int:
        """The highest number of attempts of one action."""
        return max(action.attempts for action in self.actions)

    @property
    def planned_at(self) -> float:
        """When the first was planned (UTC s)."""
        return min(action.planned_at for action in self.actions)

    @property
    def began_at(self) -> float | None:
        """When the first node started (UTC s); None if no node reported a start."""
        return min((action.began_at for action in self.actions if action.began_at is not None), default=None)

    @property
    def finished_at(self) -> float | None:
        """When the last action ended (UTC s); None while one is under way."""
        ends = [action.finished_at for action in self.actions if action.finished_at is not None]
        return max(ends) if len(ends) == len(self.actions) else None

    @property
    def deadline(self) -> float:
        """The latest deadline (UTC s)."""
        return max(action.deadline for action in self.actions)

    @property
    def took(self) -> tuple[float, float]:
        """The shortest and the longest duration of the ended actions (s)."""
        each = [a.finished_at - a.planned_at for a in self.actions if a.finished_at is not None]
        return min(each, default=0.0), max(each, default=0.0)


def group_actions(actions: Sequence[ActionView]) -> list[ActionGroup]:
    """Group the actions, keeping their order; a group stands at the place of its first action."""
    alike: dict[Hashable, list[ActionView]] = {}
    for action in actions:
        alike.setdefault(_action_grouping_key(action), []).append(action)
    rows: list[ActionGroup] = []
    grouped: set[Hashable] = set()
    for action in actions:
        key = _action_grouping_key(action)
        if len(alike[key]) < ALIKE_MIN:
            rows.append(ActionGroup((action,)))
        elif key not in grouped:
            rows.append(ActionGroup(tuple(alike[key])))
        grouped.add(key)
    return rows


def _action_grouping_key(action: ActionView) -> Hashable:
    """All that is shown of an action except its times, with the node's name removed from the outcome."""
    detail = action.detail.replace(action.node, "")
    return action.verb, action.incident, action.why, action.state, action.lacks, action.attempts, detail

"""Ranks that wait for each other called collectives of different groups in different orders: whose order is not the others'."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

from remediator.detection.hangs.call_records import Snapshot, StuckCall

CROSSED_MAX = 8  # calls to compare with each other

_Role = tuple[str, int]  # what a group is for, and the number of a call in it


def find_crossed_callers(inside: Sequence[StuckCall]) -> set[int]:
    """Of two calls that all have made, who made them in the other order; all, if neither order is the rarer one."""
    first = sorted(inside, key=lambda each: min(each.orders.values(), default=0))[:CROSSED_MAX]
    for one, other in combinations(first, 2):
        both = one.orders.keys() & other.orders.keys()
        turned = {rank for rank in both if one.orders[rank] > other.orders[rank]}
        if turned and turned != both:
            few = min(turned, both - turned, key=len)
            return set(both) if 2 * len(few) == len(both) else few
    return set()


def find_out_of_order_ranks(snapshot: Snapshot, circle: AbstractSet[int], stuck: Sequence[StuckCall]) -> set[int]:
    """Members of a circle that wait in a call which most ranks make after the one where they are waited for.

    Groups of one role, by their description, are compared with each other: each data-parallel group does the same. All of
    the circle, where the others' order says nothing.
    """
    places = _call_positions(snapshot, stuck)
    members: dict[str, set[int]] = {}
    for key, group in snapshot.groups.items():
        members.setdefault(group_role(snapshot, key), set()).update(group.members)
    odd = set()
    for rank in circle:
        waits = {_stuck_role(snapshot, each) for each in stuck if rank in each.waiting and rank not in each.idle}
        waited_for = {_stuck_role(snapshot, each) for each in stuck if rank in each.missing}
        pairs = ((one, other) for one in waits for other in waited_for if one != other)
        if any(
            _order_balance(places, one, other, (members[one[0]] & members[other[0]]) - {rank}) > 0
            for one, other in pairs
        ):
            odd.add(rank)
    return odd or set(circle)


def _stuck_role(snapshot: Snapshot, stuck: StuckCall) -> _Role:
    return group_role(snapshot, stuck.group), stuck.number


def group_role(snapshot: Snapshot, group: str) -> str:
    """What a group is for, by its description; its own name where it has none."""
    said = snapshot.groups[group].description
    return said if said not in ("", "undefined") else group


def _call_positions(snapshot: Snapshot, stuck: Sequence[StuckCall]) -> dict[_Role, dict[int, int]]:
    """Where each rank made the calls in question in its own sequence, if it did."""
    places: dict[_Role, dict[int, int]] = {_stuck_role(snapshot, each): {} for each in stuck}
    roles = {group: group_role(snapshot, group) for group in snapshot.groups}
    for call in snapshot.operations:
        role = roles[call.group], call.number
        if role in places and not call.transfers:
            places[role][call.rank] = call.order
    return places


def _order_balance(places: dict[_Role, dict[int, int]], one: _Role, other: _Role, ranks: AbstractSet[int]) -> int:
    """How many more of `ranks`, which belong to both, make `other` before `one` than the other way round."""
    if not places[one] or not places[other]:
        return 0  # messages: their numbers are each rank's own
    never = float("inf")
    order = [(places[one].get(rank, never), places[other].get(rank, never)) for rank in ranks]
    return sum((before < at) - (at < before) for at, before in order)

"""Finds ranks that call the collectives of different groups in another order than the others, and so deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

from remediator.detection.hangs.call_records import Snapshot, StuckCall

CROSSED_MAX = 8  # calls to compare with each other

_Role = tuple[str, int]  # role of a group, and the number of a call in it


def find_crossed_callers(inside: Sequence[StuckCall]) -> set[int]:
    """Of two calls that all have made, return the ranks with the rarer order; all, if neither is rarer."""
    first = sorted(inside, key=lambda each: min(each.orders.values(), default=0))[:CROSSED_MAX]
    for one, other in combinations(first, 2):
        both = one.orders.keys() & other.orders.keys()
        turned = {rank for rank in both if one.orders[rank] > other.orders[rank]}
        if turned and turned != both:
            few = min(turned, both - turned, key=len)
            return set(both) if 2 * len(few) == len(both) else few
    return set()


def find_out_of_order_ranks(snapshot: Snapshot, circle: AbstractSet[int], stuck: Sequence[StuckCall]) -> set[int]:
    """Return the members of a cycle that wait in a call which most ranks make after the one they are missing from.

    Groups of one role, by description, are compared with each other: each data-parallel group does the same. Returns
    the whole cycle if the others' order decides nothing.
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
    """Return a group's role from its description; its own name without one."""
    said = snapshot.groups[group].description
    return said if said not in ("", "undefined") else group


def _call_positions(snapshot: Snapshot, stuck: Sequence[StuckCall]) -> dict[_Role, dict[int, int]]:
    """Return the position of the given calls in each rank's own sequence, if it made them."""
    places: dict[_Role, dict[int, int]] = {_stuck_role(snapshot, each): {} for each in stuck}
    roles = {group: group_role(snapshot, group) for group in snapshot.groups}
    for call in snapshot.operations:
        role = roles[call.group], call.number
        if role in places and not call.transfers:
            places[role][call.rank] = call.order
    return places


def _order_balance(places: dict[_Role, dict[int, int]], one: _Role, other: _Role, ranks: AbstractSet[int]) -> int:
    """Return how many more of `ranks`, members of both, make `other` before `one` than the reverse."""
    if not places[one] or not places[other]:
        return 0  # messages: each rank numbers its own
    never = float("inf")
    order = [(places[one].get(rank, never), places[other].get(rank, never)) for rank in ranks]
    return sum((before < at) - (at < before) for at, before in order)

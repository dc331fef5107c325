"""Infers what records of open calls only leave out: a rank that lists a later call came out of those before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remediator.detection.hangs.call_order import group_role
from remediator.detection.hangs.call_records import Snapshot

COMPARED_MAX = 4  # ranks that list a group's calls: all of them make the calls in the same order

_Calls = Mapping[tuple[str, int], int]  # role of the group and number of the call → order of the rank's own calls


def infer_finished_calls(snapshot: Snapshot) -> dict[tuple[int, str], int]:
    """Return the last call that a rank came out of, by rank and group, where its record lists none of the group.

    PyTorch can dump open calls only (`onlyActive`). Then a rank without a call of a group has either come out of it or
    not made it. It came out if it lists a call that another member made later. If fewer than half of a group, or one of
    two ranks, would have come out, they may have left out the call instead. Empty if any record lists ended calls.
    """
    if any(call.state in ("completed", "ended") for call in snapshot.operations):
        return {}
    roles = {key: group_role(snapshot, key) for key in snapshot.groups}
    made: dict[int, dict[tuple[str, int], int]] = {}
    listed: dict[str, dict[int, dict[int, int]]] = {}  # by group and rank: order by number
    for call in snapshot.operations:
        if not call.transfers:
            made.setdefault(call.rank, {})[roles[call.group], call.number] = call.order
            listed.setdefault(call.group, {}).setdefault(call.rank, {})[call.number] = call.order
    found: dict[tuple[int, str], int] = {}
    for key, by_rank in listed.items():
        group = snapshot.groups[key]
        witnesses = [(made[rank], numbers) for rank, numbers in list(by_rank.items())[:COMPARED_MAX]]
        finished = {
            rank: number
            for rank in (group.members if group.known else ())
            if rank in made and rank not in by_rank
            if (number := _last_call_before(made[rank], witnesses)) >= 0
        }
        if len(finished) > 1 and 2 * len(finished) >= len(group.members):
            found |= {(rank, key): number for rank, number in finished.items()}
    return found


def _last_call_before(own: _Calls, witnesses: Iterable[tuple[_Calls, Mapping[int, int]]]) -> int:
    """Return the last of the group's calls that some witness made before a call that is also in `own`; -1 for none."""
    last = -1
    for calls, numbers in witnesses:
        latest = max((calls[call] for call in own.keys() & calls.keys()), default=-1)
        last = max((last, *(number for number, order in numbers.items() if order < latest)))
    return last

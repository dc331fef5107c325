"""Finds where each group's collectives are stuck, and which ranks are inside, absent, or in another call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from remediator.detection.hangs.active_records import infer_finished_calls
from remediator.detection.hangs.call_records import Group, Operation, Snapshot, StuckCall

_Calls = dict[int, Operation]  # number → call

# A rank leaves these only after every other has entered; the sender of a broadcast may leave alone.
ONE_SIDED = ("broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter")
UNEVEN = ("all_to_all", "all_gather_v", "reduce_scatter_v", "alltoall", "coalesced", "new_window", "split")


def stuck_collectives(snapshot: Snapshot) -> list[StuckCall]:
    """Return at most one per group: the earliest collective that some rank waits in."""
    groups: dict[str, dict[int, _Calls]] = {}
    for call in snapshot.operations:
        if not call.transfers:
            groups.setdefault(call.group, {}).setdefault(call.rank, {})[call.number] = call
    counted = msgspec.structs.replace(snapshot, left=infer_finished_calls(snapshot) | dict(snapshot.left))
    found = (_judge_group(counted, key, by_rank, groups) for key, by_rank in groups.items())
    return [stuck for stuck in found if stuck is not None]


def _judge_group(
    snapshot: Snapshot, key: str, by_rank: dict[int, _Calls], groups: Mapping[str, dict[int, _Calls]]
) -> StuckCall | None:
    group = snapshot.groups[key]
    unseen = {rank for rank in snapshot.everybody if rank not in snapshot.recorded}  # any of them may belong to it
    members = group.members if group.known else tuple(sorted({*group.members, *by_rank, *unseen}))
    furthest = {
        rank: max((*by_rank.get(rank, ()), snapshot.entered.get((rank, key), -1), snapshot.left.get((rank, key), -1)))
        for rank in members
    }
    recorded = [rank for rank in members if rank in snapshot.recorded]
    here = {rank: calls for rank, calls in by_rank.items() if rank in furthest}
    given_up = _given_up_number(here, min((furthest[rank] for rank in recorded), default=-1))
    done_to = {
        rank: max(_last_done_call(here.get(rank, {}), given_up), snapshot.left.get((rank, key), -1)) for rank in members
    }
    proven = _highest_proven_call(here, max(done_to.values(), default=-1))
    first = {
        rank: number
        for rank, calls in here.items()
        if (number := min((n for n in calls if n > done_to[rank]), default=None)) is not None
    }
    finished = sum(number >= proven for number in done_to.values())
    inside = {rank: number for rank, number in first.items() if number > proven}
    unfinished = {
        rank: proven - number + 1 for rank, number in sorted(first.items()) if number <= proven <= furthest[rank]
    }
    if len(unfinished) > finished:  # rather a wrong record of those that came out than a failure of so many
        inside, unfinished, proven = first, {}, -1
    if not inside and not unfinished:
        return None
    number = min(inside.values(), default=proven)
    at = {rank: calls[number] for rank, calls in here.items() if number in calls}
    waiting = tuple(sorted(rank for rank, where in inside.items() if where == number))
    odd, detail = _find_odd_ranks(at, _sister_calls(snapshot, group, key, number, groups))
    return StuckCall(
        group=key,
        number=number,
        name=Counter(call.name for call in at.values()).most_common(1)[0][0],
        waiting=waiting,
        absent=tuple(rank for rank in members if furthest[rank] < number),
        odd=odd,
        idle=tuple(rank for rank in waiting if at[rank].state == "scheduled"),
        unfinished=unfinished,
        finished=finished if unfinished else 0,
        timed_out=tuple(rank for rank in waiting if at[rank].timed_out),
        detail=detail,
        orders={rank: at[rank].order for rank in waiting},
    )


def _given_up_number(by_rank: Mapping[int, _Calls], everyone_to: int) -> float:
    """Return the number from which `ended` means given up.

    A collective cannot be complete if a recorded rank never entered it.
    """
    ended = [
        number
        for calls in by_rank.values()
        for number, call in calls.items()
        if call.state == "ended" and number > everyone_to
    ]
    return min(ended, default=float("inf"))


def _is_done(call: Operation, given_up: float) -> bool:
    return call.state == "completed" or (call.state == "ended" and call.number < given_up)


def _last_done_call(calls: _Calls, given_up: float) -> int:
    """Return the last call that the rank came out of, -1 without any.

    Collectives of a group run in order: all before a completed one are complete, whatever the record says of them. So
    are those before the first in the record: a record keeps the calls under way.
    """
    done = (number for number, call in calls.items() if _is_done(call, given_up))
    return max((*done, min(calls, default=0) - 1))


def _highest_proven_call(by_rank: Mapping[int, _Calls], done_to: int) -> int:
    """Return the highest recorded collective that a rank came out of, which proves that all have entered."""
    return max(
        (n for calls in by_rank.values() for n, call in calls.items() if n <= done_to and call.name not in ONE_SIDED),
        default=-1,
    )


def _sister_calls(
    snapshot: Snapshot, group: Group, key: str, number: int, groups: Mapping[str, dict[int, _Calls]]
) -> list[Operation]:
    """Return the same call in groups of the same role, one rank each; needed only when two ranks differ."""
    if not group.description or len(group.members) > 2:
        return []
    role = (group.description, len(group.members))
    return [
        next(iter(calls.values()))[number]
        for other, calls in groups.items()
        if other != key
        and (snapshot.groups[other].description, len(snapshot.groups[other].members)) == role
        and number in next(iter(calls.values()))
    ]


def _find_odd_ranks(at: Mapping[int, Operation], sisters: Iterable[Operation]) -> tuple[tuple[int, ...], str]:
    """Return the ranks whose call differs from most, and how; all, if no side is larger.

    Missing values are not compared.
    """
    told = tuple(all(getattr(call, field) for call in at.values()) for field in _COMPARED)
    shapes = {rank: _call_shape(call, told) for rank, call in at.items()}
    if len(set(shapes.values())) < 2:
        return (), ""
    count = Counter(shapes.values())
    count.update(shape for call in sisters if (shape := _call_shape(call, told)) in count)
    (usual, most), (_, second) = count.most_common(2)
    said = "; ".join(
        f"rank {next(r for r, s in shapes.items() if s == shape)}: {_describe_shape(shape)}"
        for shape in sorted(count, key=str)[:4]
    )
    odd = [rank for rank, shape in shapes.items() if most == second or shape != usual]
    return tuple(sorted(odd)), said


_COMPARED = ("inputs", "outputs", "input_dtypes", "output_dtypes")
_Shape = tuple[str, tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[str, ...]]


def _call_shape(call: Operation, told: tuple[bool, ...]) -> _Shape:
    """Return what must be equal on all ranks; for operations with different amounts per rank, only name and types."""
    name = call.name
    uneven = any(word in name for word in UNEVEN)
    scatters, gathers = name == "scatter", name == "gather"
    inputs, outputs, input_dtypes, output_dtypes = told
    return (
        name,
        call.inputs if inputs and not uneven and not scatters else (),
        call.outputs if outputs and not uneven and not gathers else (),
        call.input_dtypes if input_dtypes and not scatters and any(call.inputs) else (),
        call.output_dtypes if output_dtypes and not gathers and any(call.outputs) else (),
    )


def _describe_shape(shape: _Shape) -> str:
    name, inputs, outputs, input_dtypes, output_dtypes = shape
    sizes = f" of {'+'.join(map(str, inputs or outputs))}" if inputs or outputs else ""
    return f"{name}{sizes} {'/'.join(input_dtypes or output_dtypes)}".rstrip()

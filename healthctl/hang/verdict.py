"""Which collective a job hangs in, and which rank did not arrive at it. Pure: dumps in, findings out.

In each process group the earliest collective that somebody entered and nobody finished is where it stands. Members that
have not entered it keep the others waiting. A member that itself waits in another group is a victim of that one; those
that wait nowhere are the ones to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from healthctl.hang.dumps import Dump, Entry


class Place(msgspec.Struct, frozen=True):
    """Where in the program a rank called an operation last, outside of torch; empty where the dump does not tell."""

    rank: int
    operation: str
    number: int
    called_from: str


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """A group that stands still at its collective `number`.

    `kind`: missing (ranks in `missing` have not entered), mismatch (`odd` entered something else), not_started (`odd` have
    it queued while others run it), inside (all entered the same: look at the network and the GPUs).
    """

    group: str
    description: str
    number: int
    operation: str
    kind: str
    waiting: tuple[int, ...]
    missing: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    members_known: bool = True
    places: tuple[Place, ...] = ()  # of those to blame in this group


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`culprits` keep others waiting and wait for nobody; `victims` do both. `cycle`: everybody waits for somebody."""

    ranks: int
    stuck: tuple[Stuck, ...]
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    cycle: bool
    silent: tuple[int, ...]  # members that left no dump


_Key = tuple[str, str, tuple[int, ...]]


def judge(dumps: Mapping[int, Dump], world: int = 0) -> Verdict:
    """Everything that stands still. `world` is the number of ranks, 0 if not known: then those with dumps are all there are."""
    everybody = tuple(sorted({*dumps, *range(world)}))
    groups: dict[_Key, dict[int, list[Entry]]] = {}
    for rank, dump in dumps.items():
        for entry in dump.entries:
            if not entry.is_p2p:
                name, description = entry.process_group
                key = (name, description, dump.members(name))
                groups.setdefault(key, {}).setdefault(rank, []).append(entry)
    stuck = [found for key, by_rank in groups.items() if (found := _judge_group(key, by_rank, dumps, everybody))]
    blamed = {rank for each in stuck for rank in (*each.missing, *each.odd)}
    waiting = {rank for each in stuck for rank in each.waiting}
    silent = {rank for rank in everybody if rank not in dumps} | {
        r for each in stuck for r in each.missing if r not in dumps
    }
    culprits = {r for r in blamed if r not in waiting} | {
        r for each in stuck for r in each.odd if each.kind == "mismatch"
    }
    return Verdict(
        ranks=len(dumps),
        stuck=tuple(sorted(stuck, key=lambda each: (each.kind != "missing", each.group, each.number))),
        culprits=tuple(sorted(culprits)),
        victims=tuple(sorted(blamed - culprits)),
        cycle=bool(blamed) and not culprits and all(each.kind != "inside" for each in stuck),
        silent=tuple(sorted(silent)),
    )


def _judge_group(
    key: _Key, by_rank: Mapping[int, list[Entry]], dumps: Mapping[int, Dump], everybody: Iterable[int]
) -> Stuck | None:
    name, description, members = key
    unfinished = [entry.collective_seq_id for entries in by_rank.values() for entry in entries if not entry.done]
    if not unfinished:
        return None
    number = min(unfinished)
    known = bool(members) or description == "default_pg"
    members = members or (tuple(everybody) if known else tuple(sorted(by_rank)))
    furthest = {rank: max(e.collective_seq_id for e in entries) for rank, entries in by_rank.items()}
    entered = {rank for rank in members if furthest.get(rank, 0) >= number}
    entries = {r: e for r in entered for e in by_rank[r] if e.collective_seq_id == number}
    waiting = tuple(sorted(r for r, e in entries.items() if not e.done))
    missing = tuple(rank for rank in members if rank not in entered)
    kind, odd = ("missing", ()) if missing else _differences(entries)
    shown = Counter(entry.profiling_name for entry in entries.values()).most_common(1)[0][0]
    return Stuck(
        group=name,
        description=description,
        number=number,
        operation=shown,
        kind=kind,
        waiting=waiting,
        missing=missing,
        odd=odd,
        members_known=known,
        places=tuple(
            _last_place(rank, dumps[rank]) for rank in (*missing, *odd) if rank in dumps and dumps[rank].entries
        ),
    )


def _differences(entries: Mapping[int, Entry]) -> tuple[str, tuple[int, ...]]:
    """What sets some of those that entered apart from most."""
    shapes = {rank: (e.profiling_name, _shape(e)) for rank, e in entries.items()}
    usual, count = Counter(shapes.values()).most_common(1)[0]
    if count < len(shapes):
        return "mismatch", tuple(sorted(rank for rank, shape in shapes.items() if shape != usual))
    open_states = {rank: e.state for rank, e in entries.items() if not e.done}
    if {"started", "scheduled"} <= set(open_states.values()):
        return "not_started", tuple(sorted(rank for rank, state in open_states.items() if state == "scheduled"))
    return "inside", ()


def _shape(entry: Entry) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """What must be equal on all ranks; of operations that take other amounts from each, only the types."""
    uneven = any(word in entry.profiling_name for word in ("all_to_all", "gather", "scatter", "broadcast"))
    sizes = () if uneven else tuple(tuple(size) for size in entry.input_sizes)
    return sizes, () if uneven else tuple(entry.input_dtypes)


def _last_place(rank: int, dump: Dump) -> Place:
    last = max(dump.entries, key=lambda entry: entry.record_id)
    own = [frame for frame in last.frames if "/torch/" not in frame.filename and frame.filename]
    where = f"{own[0].filename}:{own[0].line} in {own[0].name}" if own else ""
    return Place(rank, last.profiling_name, last.collective_seq_id, where)

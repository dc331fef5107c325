"""Merges the dumps of all ranks into one snapshot with common group names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from healthctl.flight_recorder.dumps import Dump, Entry
from healthctl.flight_recorder.process_groups import DEFAULT, ProcessGroups
from remediator.detection.hangs.call_records import Operation, Snapshot, Transfer

_TRANSFER = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")
_END = re.compile(r"coalesced|[A-Z_]+_coalesced")  # closes several calls that were issued as one


class _Call(NamedTuple):
    """One entry, or several issued as one: then the last holds the state, and `parts` the calls."""

    entry: Entry
    parts: Sequence[Entry]


def build_snapshot(dumps: Mapping[int, Dump], world: int = 0) -> Snapshot:
    """Build the snapshot. `world` is the world size if known; else it is inferred from the highest rank seen."""
    groups = ProcessGroups(dumps, world)
    timed = any(e.time_discovered_started_ns or e.state == "started" for dump in dumps.values() for e in dump.calls)
    operations = [
        operation for rank, dump in dumps.items() for operation in _build_operations(rank, dump, groups, timed=timed)
    ]
    return Snapshot(
        operations=operations,
        entered=_infer_entered_counts(dumps, operations, groups),
        groups=groups.seen((each.group, each.rank) for each in operations),
        recorded=frozenset(
            rank for rank, dump in dumps.items() if dump.entries or _last_enqueued_collective(dump) is not None
        ),
        everybody=groups.everybody,
        whole=frozenset(rank for rank, dump in dumps.items() if dump.calls and dump.calls[0].record_id == 0),
    )


def _build_operations(rank: int, dump: Dump, groups: ProcessGroups, *, timed: bool) -> Iterator[Operation]:
    by_group: dict[str, list[Entry]] = {}
    keys: dict[tuple[str, str, str], str] = {}
    for entry in dump.calls:
        means = (*entry.group, entry.called[0])
        if means not in keys:
            keys[means] = groups.key_of(rank, *means)
        by_group.setdefault(keys[means], []).append(entry)
    for key, entries in by_group.items():
        members = groups.found[key].members
        for call in _merge_coalesced_calls(entries):
            transfers = tuple(found for part in call.parts if (found := _parse_transfer(part, members)) is not None)
            if transfers or not (call.entry.is_p2p or _TRANSFER.match(call.entry.called[1])):
                yield _build_operation(rank, key, call, transfers, timed=timed)


def _merge_coalesced_calls(entries: Iterable[Entry]) -> Iterator[_Call]:
    """Merge coalesced calls: each is recorded, but only the closing entry is updated; the others stay scheduled."""
    waiting: list[Entry] = []
    for entry in entries:
        if waiting and not _is_same_call(waiting[-1], entry):
            yield from (_Call(each, [each]) for each in waiting)
            waiting = []
        if _END.fullmatch(entry.called[1]):
            if waiting or not entry.is_p2p:
                yield _Call(entry, waiting or [entry])
            waiting = []
        elif entry.state == "scheduled" and not entry.retired:
            waiting.append(entry)
        else:
            yield from (_Call(each, [each]) for each in waiting)
            waiting = []
            yield _Call(entry, [entry])
    yield from (_Call(each, [each]) for each in waiting)


def _is_same_call(one: Entry, other: Entry) -> bool:
    return (one.number, one.p2p_seq_id) == (other.number, other.p2p_seq_id)


def _parse_transfer(entry: Entry, members: Sequence[int]) -> Transfer | None:
    """The two ends of a send or a receive, which are told by their place in the group."""
    match = _TRANSFER.match(entry.called[1])
    if match is None:
        return None
    first, second = (members[int(end)] if int(end) < len(members) else int(end) for end in match.group(2, 3))
    source, target = (first, second) if match[1] == "send" else (second, first)
    sizes, dtypes = (
        (entry.input_sizes, entry.input_dtypes) if match[1] == "send" else (entry.output_sizes, entry.output_dtypes)
    )
    return Transfer(source, target, sum(_count_elements(sizes)), "/".join(_flatten_texts(dtypes)))


def _build_operation(rank: int, key: str, call: _Call, transfers: tuple[Transfer, ...], *, timed: bool) -> Operation:
    entry = call.entry
    backend, name = entry.called
    done = entry.state == "completed"
    state = (
        "completed"
        if done
        else "ended"
        if entry.retired and backend == "gloo"  # gloo never reports completion
        else "pending"
        if not timed
        else "started"
        if entry.state == "started"
        else "scheduled"
    )
    return Operation(
        rank=rank,
        group=key,
        number=(entry.p2p_seq_id or 0) if transfers else entry.number,
        name=call.parts[0].called[1].partition(" ")[0] if transfers else name,
        order=entry.record_id,
        state=state,
        inputs=_count_elements(entry.input_sizes),
        outputs=_count_elements(entry.output_sizes),
        input_dtypes=_flatten_texts(entry.input_dtypes),
        output_dtypes=_flatten_texts(entry.output_dtypes),
        transfers=transfers,
        created_ns=int(entry.time_created_ns or 0),
        timed_out=bool(entry.retired) and not done and backend != "gloo",
    )


def _count_elements(sizes: Any) -> tuple[int, ...]:
    """Elements of each tensor. Sizes are a list of shapes; some versions omit the outer brackets."""
    if not isinstance(sizes, list | tuple):
        return ()
    if sizes and all(isinstance(size, int) for size in sizes):
        return (math.prod(sizes),)
    return tuple(math.prod(d for d in size if isinstance(d, int)) for size in sizes if isinstance(size, list | tuple))


def _flatten_texts(said: Any) -> tuple[str, ...]:
    if isinstance(said, str):
        return (said,)
    return tuple(text for each in said for text in _flatten_texts(each)) if isinstance(said, list | tuple) else ()


def _infer_entered_counts(
    dumps: Mapping[int, Dump], operations: Iterable[Operation], groups: ProcessGroups
) -> dict[tuple[int, str], int]:
    """How many calls a rank entered in the default group, if calls in other groups evicted its own from the ring buffer.

    Counters of other groups cannot be attributed once no entry names them; gloo's counters include its messages.
    """
    seen = {(each.rank, each.group) for each in operations}
    keys = [key for key, group in groups.found.items() if group.description == DEFAULT and not key.startswith("gloo/")]
    return {
        (rank, key): number
        for key in keys
        for rank, dump in dumps.items()
        if (number := _last_enqueued_collective(dump)) is not None and (rank, key) not in seen
    }


def _last_enqueued_collective(dump: Dump) -> int | None:
    """The rank's last call in the default group, from its counters; None if not recorded or not started."""
    progress = (dump.pg_status or {}).get("0")
    told = None if progress is None else progress.last_enqueued_collective
    return None if told is None or told < 0 else told

"""Merges the dumps of all ranks into one snapshot with common group names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from healthctl.flight_recorder.dumps import Dump, Entry, Progress
from remediator.detection.hangs.call_records import Group, Operation, Snapshot, Transfer

_TRANSFER = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")
_END = re.compile(r"coalesced|[A-Z_]+_coalesced")  # closes several calls that were issued as one
DEFAULT = "default_pg"
STILL_NS = 5 * 10**9  # without a call of any rank: most jobs call a collective many times a second

_Members = tuple[int, ...]
_Name = tuple[int, str]  # rank, and its name of a group


class _Call(NamedTuple):
    """One entry, or several issued as one: then the last holds the state, and `parts` the calls."""

    entry: Entry
    parts: Sequence[Entry]


def build_snapshot(dumps: Mapping[int, Dump], world: int = 0) -> Snapshot:
    """Build the snapshot. `world` is the world size if known; else it is inferred from the highest rank seen."""
    groups = ProcessGroups(dumps, world)
    timed = any(e.time_discovered_started_ns or e.state == "started" for dump in dumps.values() for e in dump.calls)
    batched = _find_batched_groups(dumps)
    operations = [
        operation
        for rank, dump in dumps.items()
        for operation in _build_operations(rank, dump, groups, timed=timed, batched=batched)
    ]
    entered, left = _read_call_counters(dumps, operations, groups)
    return Snapshot(
        operations=operations,
        entered=entered,
        left=left,
        groups=groups.seen((each.group, each.rank) for each in operations),
        recorded=frozenset(
            rank
            for rank, dump in dumps.items()
            if dump.entries
            or any(_is_counted(each.last_enqueued_collective) for each in (dump.pg_status or {}).values())
        ),
        everybody=groups.everybody,
        whole=frozenset(rank for rank, dump in dumps.items() if dump.calls and dump.calls[0].record_id == 0),
        untimed=frozenset(each.group for each in operations if each.state == "pending" and groups.on_gpu(each.group)),
        moving=_is_job_moving(dumps),
    )


def _is_job_moving(dumps: Mapping[int, Dump]) -> bool:
    """Return whether all ranks made a call shortly before their dumps were written, and none gave one up."""
    ages = [
        dump.written_ns - max(int(each.time_created_ns or 0) for each in dump.calls)
        for dump in dumps.values()
        if dump.written_ns and dump.calls
    ]
    gave_up = any(each.retired and each.state != "completed" for dump in dumps.values() for each in dump.calls)
    return bool(ages) and not gave_up and min(ages) >= 0 and max(ages) < STILL_NS


def _find_batched_groups(dumps: Mapping[int, Dump]) -> set[str]:
    """Return the descriptions of groups whose messages are issued in batches, if the dumps list open calls only.

    The parts of a batch stay scheduled for good, and only its closing entry is updated. So a dump of open calls lists
    the parts of all ended batches.
    """
    if any(each.state == "completed" for dump in dumps.values() for each in dump.calls):
        return set()
    return {
        each.group[1]
        for dump in dumps.values()
        for each in dump.calls
        if each.is_p2p and _END.fullmatch(each.called[1])
    }


def _build_operations(
    rank: int, dump: Dump, groups: ProcessGroups, *, timed: bool, batched: AbstractSet[str]
) -> Iterator[Operation]:
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
            if call.entry.is_p2p and call.entry.group[1] in batched and not _END.fullmatch(call.entry.called[1]):
                continue
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
    """The two ends of a send or a receive, given by their positions in the group."""
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


_Counts = dict[tuple[int, str], int]


def _read_call_counters(
    dumps: Mapping[int, Dump], operations: Iterable[Operation], groups: ProcessGroups
) -> tuple[_Counts, _Counts]:
    """Return the last collective that each rank entered, and that it came out of, per group, from its counters.

    Counters of a group with messages, or of gloo, include these and are not used.
    """
    with_messages = {each.group for each in operations if each.transfers}
    entered: _Counts = {}
    left: _Counts = {}
    for rank, dump in dumps.items():
        for name, progress in _name_counters(dump).items():
            for key in groups.keys_of(rank, name):
                if key in with_messages or not groups.on_gpu(key):
                    continue
                for counts, number in (
                    (entered, progress.last_enqueued_collective),
                    (left, progress.last_completed_collective),
                ):
                    if _is_counted(number):
                        counts[rank, key] = number
    return entered, left


def _is_counted(number: int | None) -> TypeGuard[int]:
    """Return whether a counter is known: PyTorch writes -1 before the first call."""
    return number is not None and number >= 0


def _name_counters(dump: Dump) -> dict[str, Progress]:
    """Return a dump's counters by group name. They are numbered by the rank: its entries, or the order of names, decide."""
    status = dump.pg_status or {}
    default = next((name for name, group in dump.groups.items() if group.desc == DEFAULT), "0")
    known = {str(entry.pg_id): entry.group[0] for entry in dump.calls if entry.pg_id} | {"0": default}
    names = sorted(dump.groups, key=_natural_sort_key)
    if len(names) == len(status):
        by_order = dict(zip(sorted(status, key=_natural_sort_key), names, strict=True))
        if all(by_order.get(number, name) == name for number, name in known.items()):
            known = by_order
    return {name: status[number] for number, name in known.items() if number in status}


class ProcessGroups:
    """Every group of the dumps under one key: a group may have a different name on each rank, and a name denote several groups.

    `everybody` is the set of all ranks, with or without a dump.
    """

    def __init__(self, dumps: Mapping[int, Dump], world: int = 0) -> None:
        """Args: `world`: the world size, 0 if unknown: then it is inferred from the highest rank named."""
        said = {
            (rank, name): (group.members, group.desc)
            for rank, dump in dumps.items()
            for name, group in dump.groups.items()
            if group.members
        }
        highest = max((world - 1, *dumps, *(rank for members, _ in said.values() for rank in members)), default=-1)
        self.everybody = tuple(range(highest + 1))
        self._said = said
        self._by_name: dict[str, list[_Members]] = {}
        for (_, name), (members, _) in said.items():
            if members not in (known := self._by_name.setdefault(name, [])):
                known.append(members)
        self._common = _assign_common_names(said)
        self._ids: dict[frozenset[int], int] = {}
        self.found: dict[str, Group] = {}

    def key_of(self, rank: int, name: str, description: str, backend: str) -> str:
        """The key of a rank's group. Numbers of different backends are separate, even if the group name is equal."""
        members = self._members(rank, name, description)
        common = self._common.get((rank, name), name)
        key = f"{backend}/{common}/{self._ids.setdefault(_member_set(members), len(self._ids))}"
        if key not in self.found:
            self.found[key] = Group(name, description, members, bool(members))
        return key

    def keys_of(self, rank: int, name: str) -> list[str]:
        """The keys of a group that a rank calls so, among those found; one for each backend."""
        wanted = f"/{self._common.get((rank, name), name)}/"
        return [key for key, group in self.found.items() if wanted in key and rank in group.members]

    @staticmethod
    def on_gpu(key: str) -> bool:
        """Whether a GPU executes the group's calls."""
        return not key.startswith("gloo/")

    def _members(self, rank: int, name: str, description: str) -> _Members:
        """Members from the rank's dump, or from others for the same name; gloo records only the default group, without a name."""
        if (rank, name) in self._said:
            return self._said[rank, name][0]
        others = [members for members in self._by_name.get(name, ()) if rank in members]
        if len(others) == 1:
            return others[0]
        if description != DEFAULT and (name, description) not in (("0", ""), ("0", "undefined")):
            return ()
        return self._said.get((rank, ""), (self.everybody, ""))[0]

    def seen(self, calls: Iterable[tuple[str, int]]) -> dict[str, Group]:
        """The groups; a group without a member list gets the ranks that called it: `calls` are key and rank."""
        callers: dict[str, set[int]] = {}
        for key, rank in calls:
            callers.setdefault(key, set()).add(rank)
        return {
            key: group
            if group.known
            else Group(group.name, group.description, tuple(sorted(callers.get(key, ()))), False)
            for key, group in self.found.items()
        }


def _assign_common_names(said: Mapping[_Name, tuple[_Members, str]]) -> dict[_Name, str]:
    """Name groups whose members disagree on a name: by their position among the rank's groups with the same members."""
    by_members: dict[frozenset[int], dict[int, dict[str, str]]] = {}
    for (rank, name), (members, description) in said.items():
        by_members.setdefault(_member_set(members), {}).setdefault(rank, {})[name] = description
    common: dict[_Name, str] = {}
    for ranks in by_members.values():
        most = max(ranks.values(), key=len)
        if all(names.keys() <= most.keys() for names in ranks.values()):
            continue
        for rank, names in ranks.items():
            roles: dict[str, list[str]] = {}
            for name in sorted(names, key=_natural_sort_key):
                roles.setdefault(names[name], []).append(name)
            for role, of_role in roles.items():
                common |= {(rank, name): f"{role}#{place}" for place, name in enumerate(of_role)}
    return common


@lru_cache(maxsize=4096)
def _member_set(members: _Members) -> frozenset[int]:
    return frozenset(members)


def _natural_sort_key(name: str) -> tuple[int, str]:
    """Sort names that contain numbers in order of creation."""
    return (int(name) if name.isdecimal() and len(name) < 10 else 0), name

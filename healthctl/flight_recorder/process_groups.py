"""Identifies process groups across ranks: a group may have a different name on each rank, and a name may denote several groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from healthctl.flight_recorder.dumps import Dump
from remediator.detection.hangs.call_records import Group

DEFAULT = "default_pg"

_Members = tuple[int, ...]
_Name = tuple[int, str]  # rank, and its name of a group


class ProcessGroups:
    """Every group of the dumps under one key. `everybody` is the set of all ranks, with or without a dump."""

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

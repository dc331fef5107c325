"""Which groups the ranks mean: the same one may have another name on each rank, and one name may mean several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from healthctl.hang.dumps import Dump
from remediator.detect.hangs.records import Group

DEFAULT = "default_pg"

_Members = tuple[int, ...]
_Name = tuple[int, str]  # rank, and what it calls a group


class Groups:
    """Every group of the dumps under one key. `everybody` are all ranks there are, with and without a dump."""

    def __init__(self, dumps: Mapping[int, Dump], world: int = 0) -> None:
        """Args: `world`: the number of ranks, 0 if not known: then there are those up to the highest that is named."""
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
        self._common = _common_names(said)
        self.found: dict[str, Group] = {}

    def key_of(self, rank: int, name: str, description: str, backend: str) -> str:
        """The group that `rank` means. One backend's numbers are not another's, though they share the group's name."""
        members = self._members(rank, name, description)
        common = self._common.get((rank, name), name)
        key = f"{backend}/{common}/{','.join(map(str, sorted(members)))}"
        if key not in self.found:
            self.found[key] = Group(name, description, members, bool(members))
        return key

    def _members(self, rank: int, name: str, description: str) -> _Members:
        """As the rank says, or the others of the same name; gloo tells of the default group only, and under no name."""
        if (rank, name) in self._said:
            return self._said[rank, name][0]
        others = [members for members in self._by_name.get(name, ()) if rank in members]
        if len(others) == 1:
            return others[0]
        if description != DEFAULT:
            return ()
        return self._said.get((rank, ""), (self.everybody, ""))[0]

    def seen(self, calls: Iterable[tuple[str, int]]) -> dict[str, Group]:
        """The groups; one whose members nobody tells has those that were seen calling: `calls` are key and rank."""
        callers: dict[str, set[int]] = {}
        for key, rank in calls:
            callers.setdefault(key, set()).add(rank)
        return {
            key: group
            if group.known
            else Group(group.name, group.description, tuple(sorted(callers.get(key, ()))), False)
            for key, group in self.found.items()
        }


def _common_names(said: Mapping[_Name, tuple[_Members, str]]) -> dict[_Name, str]:
    """What to call the groups that no two members call the same: by their place among the rank's own over the same members."""
    use = Counter((name, frozenset(members)) for (_, name), (members, _) in said.items())
    alone: dict[tuple[int, frozenset[int]], list[tuple[str, list[int], str]]] = {}
    for (rank, name), (members, description) in said.items():
        if len(members) > 1 and use[name, frozenset(members)] == 1:
            natural = [int(digits) for digits in re.findall(r"\d+", name)] if len(name) < 12 else []
            alone.setdefault((rank, frozenset(members)), []).append((description, natural, name))
    shared = Counter(members for _, members in alone)
    return {
        (rank, name): f"{description}#{place}"
        for (rank, members), names in alone.items()
        if shared[members] > 1
        for place, (description, _, name) in enumerate(sorted(names))
    }

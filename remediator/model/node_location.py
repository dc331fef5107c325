"""Where a node stands and what it runs: everything that nodes can share, and fail together for."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class NodeLocation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One node's rack, leaf switch, operating system image, driver version and partitions; empty where not told."""

    rack: str = ""
    switch: str = ""
    image: str = ""
    driver: str = ""
    partitions: tuple[str, ...] = ()

    def of(self, kind: str) -> tuple[str, ...]:
        """The places of one kind: ``rack``, ``switch``, ``image``, ``driver`` or ``partition``."""
        if kind == "partition":
            return self.partitions
        name: str = getattr(self, kind)
        return (name,) if name else ()

    @property
    def keys(self) -> Iterator[str]:
        """All of them as ``KIND:NAME``."""
        return (f"{kind}:{name}" for kind in KINDS for name in self.of(kind))


BACKEND, FILE = "backend", "file"  # sources; of two the later by name counts, so the site's own file has the last word
KINDS = ("switch", "rack", "driver", "image", "partition")
CAUSES = KINDS[:-1]  # what a fault of many nodes may come from; a partition is only a list


def merge_locations(old: NodeLocation, new: NodeLocation) -> NodeLocation:
    """What the newer source says, and the older where it says nothing."""
    fields = {name: getattr(new, name) or getattr(old, name) for name in NodeLocation.__struct_fields__}
    return NodeLocation(**fields)

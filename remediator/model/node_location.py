"""A node's location and software: everything that nodes can share, and fail together for."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class NodeLocation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One node's rack, leaf switch, operating system image, driver version and partitions; empty if unknown."""

    rack: str = ""
    switch: str = ""
    image: str = ""
    driver: str = ""
    partitions: tuple[str, ...] = ()

    def of(self, kind: str) -> tuple[str, ...]:
        """Return the values of one kind: ``rack``, ``switch``, ``image``, ``driver`` or ``partition``."""
        if kind == "partition":
            return self.partitions
        name: str = getattr(self, kind)
        return (name,) if name else ()

    @property
    def keys(self) -> Iterator[str]:
        """Return all of them as ``KIND:NAME``."""
        return (f"{kind}:{name}" for kind in KINDS for name in self.of(kind))


BACKEND, FILE = "backend", "file"  # sources; the later name wins, so the site's own file goes before the backend
KINDS = ("switch", "rack", "driver", "image", "partition")
CAUSES = KINDS[:-1]  # possible common causes; a partition is only a list


def merge_locations(old: NodeLocation, new: NodeLocation) -> NodeLocation:
    """Return the newer source's values, and the older's where it has none."""
    fields = {name: getattr(new, name) or getattr(old, name) for name in NodeLocation.__struct_fields__}
    return NodeLocation(**fields)

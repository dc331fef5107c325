"""The topology file: each node's rack, switch, image, driver and partitions.

    nodes:
      n[001-032]: {rack: r1, switch: leaf1, partitions: [train]}
      "*": {image: ubuntu-22.04-3}

Keys are node names, shell patterns, or names with one range in brackets. A node gets the values of all keys that match
it; of contradicting values, the later line wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from remediator.model.node_location import NodeLocation, merge_locations
from vocabulary.text.yaml_text import YamlTextError, read_yaml

RANGE_MAX = 100_000
DIGITS_MAX = 18
_RANGE = re.compile(r"([^\[\]]*)\[(\d+)-(\d+)\]([^\[\]]*)")
_KEYS = ", ".join(NodeLocation.__struct_fields__)


class TopologyError(ValueError):
    """An error in the file: file, key of the line, and what is wrong."""


class TopologyFile(msgspec.Struct, frozen=True):
    """The parsed file: single nodes and ranges by name, and patterns, each with its position in the file."""

    lines: tuple[tuple[str, NodeLocation], ...]

    def of(self, nodes: Iterable[str]) -> dict[str, NodeLocation]:
        """Return the locations of these nodes, and of those that the file names without a pattern."""
        by_name: dict[str, NodeLocation] = {}
        names = {*nodes, *(name for key, _ in self.lines if not _is_pattern(key) for name in _expand_node_range(key))}
        for key, places in self.lines:
            fitting = (n for n in names if fnmatchcase(n, key)) if _is_pattern(key) else _expand_node_range(key)
            for name in fitting:
                by_name[name] = merge_locations(by_name.get(name, NodeLocation()), places)
        return by_name


def load_topology(path: Path) -> TopologyFile:
    """Read and check the file.

    Raises:
        TopologyError: it cannot be read, is no such document, or has an invalid line.
    """
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read ({error.strerror})") from error
    except YamlTextError as error:
        raise TopologyError(f"{path}: {error}") from error
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, dict) or set(document) != {"nodes"}:
        raise TopologyError(f"{path}: write 'nodes:' and, under it, a line for each node or pattern")
    return TopologyFile(
        tuple((_check_node_key(path, key), _parse_location(path, key, said)) for key, said in nodes.items())
    )


def _check_node_key(path: Path, key: Any) -> str:
    if not isinstance(key, str) or not key:
        raise TopologyError(f"{path}: nodes: {key!r} is not a string; put it in quotes")
    found = _RANGE.fullmatch(key)
    if found is None:
        return key
    first, last = (int(number[:DIGITS_MAX]) for number in found.group(2, 3))
    if max(map(len, found.group(2, 3))) > DIGITS_MAX or not first <= last < first + RANGE_MAX:
        raise TopologyError(
            f"{path}: nodes: {key}: a range goes from the smaller number to the larger and has at most {RANGE_MAX} nodes"
        )
    return key


def _parse_location(path: Path, key: str, said: Any) -> NodeLocation:
    if isinstance(said, dict) and isinstance(said.get("partitions"), str):
        said = said | {"partitions": [said["partitions"]]}
    try:
        return msgspec.convert(said, NodeLocation)
    except msgspec.ValidationError as error:
        raise TopologyError(f"{path}: nodes: {key}: {error}; known keys: {_KEYS}, all strings") from error


def _is_pattern(key: str) -> bool:
    return _RANGE.fullmatch(key) is None and any(mark in key for mark in "*?[")


def _expand_node_range(key: str) -> Iterable[str]:
    found = _RANGE.fullmatch(key)
    if found is None:
        return (key,)
    width = len(found[2]) if found[2].startswith("0") else 0
    return (f"{found[1]}{number:0{width}d}{found[4]}" for number in range(int(found[2]), int(found[3]) + 1))

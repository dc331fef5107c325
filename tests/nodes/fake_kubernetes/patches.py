"""The four kinds of patch, each from an object to a new one; and which fields differ between two."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

# Lists that are maps to strategic merge and to server-side apply. Taints are not: that list is one value.
MERGE_KEYS = {"conditions": "type", "containers": "name", "ownerReferences": "uid"}
Path = tuple[str, ...]


class PatchError(ValueError):
    """The patch cannot be applied."""


def merge(now: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(now) if isinstance(now, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(now: Any, patch: Any) -> Any:
    """As `merge`, but lists with a merge key are merged item by item."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(now) if isinstance(now, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif name in MERGE_KEYS and isinstance(value, list):
            result[name] = _merge_list(result.get(name) or [], value, MERGE_KEYS[name])
        else:
            result[name] = strategic(result.get(name), value)
    return result


def _merge_list(now: list[Any], patch: list[Any], key: str) -> list[Any]:
    items = {item[key]: item for item in now}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item[key], None)
        else:
            items[item[key]] = strategic(items.get(item[key]), item)
    return list(items.values())


def json_patch(now: Any, steps: list[dict[str, Any]]) -> Any:
    """RFC 6902: test, add, replace, remove."""
    result = copy.deepcopy(now)
    for step in steps:
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place = result
        try:
            for part in above:
                place = place[int(part)] if isinstance(place, list) else place[part]
            key: Any = int(last) if isinstance(place, list) and last != "-" else last
            _step(place, key, step)
        except (KeyError, IndexError, TypeError) as error:
            raise PatchError(f"no such path {step['path']}") from error
    return result


def _step(place: Any, key: Any, step: dict[str, Any]) -> None:
    if step["op"] == "test":
        if place[key] != step["value"]:
            raise PatchError(f"test failed at {step['path']}")
    elif step["op"] == "remove":
        del place[key]
    elif isinstance(place, list) and step["op"] == "add":
        place.insert(len(place) if key == "-" else key, step["value"])
    else:
        place[key] = step["value"]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field with its value, by the path that managedFields gives it."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, (*path, f"f:{name}"))
    elif isinstance(value, list) and path and path[-1][2:] in MERGE_KEYS:
        key = MERGE_KEYS[path[-1][2:]]
        for item in value:
            yield from leaves(item, (*path, "k:" + json.dumps({key: item[key]}, separators=(",", ":"))))
    else:
        yield path, value


def tree(paths: set[Path]) -> dict[str, Any]:
    """The paths as `fieldsV1` has them."""
    found: dict[str, Any] = {}
    for path in sorted(paths):
        place = found
        for part in path:
            place = place.setdefault(part, {})
    return found


def without(thing: dict[str, Any], path: Path) -> None:
    """Remove the field at `path`, where it is."""
    place: Any = thing
    for part in path[:-1]:
        if part.startswith("f:"):
            place = place.get(part[2:]) if isinstance(place, dict) else None
        else:
            wanted = json.loads(part[2:])
            place = next((item for item in place or () if wanted.items() <= item.items()), None)
    if isinstance(place, dict) and path[-1].startswith("f:"):
        place.pop(path[-1][2:], None)


KINDS = {"merge": merge, "strategic": strategic, "json": json_patch}

"""Converts YAML to records, all or nothing; every error has a line and column, and the closest valid word."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from remediator.playbook.playbook_errors import PolicyError

BYTES_MAX = 4 << 20
DEPTH_MAX = 40
NODES_MAX = 200_000

T = TypeVar("T")
Path_ = tuple[str | int, ...]

_WHERE = re.compile(r" - at `(?P<path>.*)`$")
_PART = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_STRAY_KEY = re.compile(r"unknown field `(?P<word>.*?)`")
_STRAY_WORD = re.compile(r"Invalid enum value (?P<word>.*?)$")


class YamlSource(Generic[T]):
    """A parsed and checked YAML file: its record, and the position of each part."""

    def __init__(self, path: Path, data: bytes, kind: type[T]) -> None:
        self.path = path
        self._kind = kind
        self._root = _compose_yaml(path, data)
        if self._root is None:
            raise PolicyError(f"{path}:1:1: the file is empty")
        try:
            self.record = msgspec.convert(_PlainData(path).data(self._root), kind)
        except msgspec.ValidationError as error:
            raise PolicyError(self._explain(str(error))) from error

    def place(self, *path: str | int) -> str:
        """Return FILE:LINE:COLUMN of a part, or of the closest enclosing part in the file."""
        mark = _find_yaml_node(self._root, path).start_mark
        return f"{self.path}:{mark.line + 1}:{mark.column + 1}"

    def _explain(self, problem: str) -> str:
        found = _WHERE.search(problem)
        sentence = problem[: found.start()] if found else problem
        parts = [p["name"] or p["index"] for p in _PART.finditer(found["path"])] if found else []
        path: Path_ = tuple(int(p) if p.isdigit() else p for p in parts if p != "...")
        stray = _STRAY_KEY.search(sentence)
        if stray is not None:
            known = _known_words(self._kind, path, keys=True)
            return f"{self._key_place(path, stray['word'])}: '{stray['word']}' is not a key here; {_nearest_word(stray['word'], known)}"
        stray = _STRAY_WORD.search(sentence)
        node = _find_yaml_node(self._root, path)
        if stray is not None:
            word = str(node.value) if isinstance(node, yaml.ScalarNode) else stray["word"]
            return f"{self.place(*path)}: '{word}' is unknown here; {_nearest_word(word, _known_words(self._kind, path, keys=False))}"
        about = f"'{path[-1]}': " if path and isinstance(path[-1], str) else ""
        return f"{self.place(*path)}: {about}{sentence[:1].lower()}{sentence[1:]}"

    def _key_place(self, path: Path_, word: str) -> str:
        node = _find_yaml_node(self._root, path)
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == word:
                return f"{self.path}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        return self.place(*path)


def read_yaml_record(path: Path, kind: type[T]) -> YamlSource[T]:
    """Read one file.

    Raises:
        PolicyError: it cannot be read, is no YAML, or does not fit `kind`.
    """
    return YamlSource(path, read_source_bytes(path), kind)


def read_source_bytes(path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        PolicyError: it cannot be read, or is larger than any playbook.
    """
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if len(data) > BYTES_MAX:
        raise PolicyError(f"{path}: larger than {BYTES_MAX} bytes; check whether it is a playbook")
    return data


def _compose_yaml(path: Path, data: bytes) -> yaml.Node | None:
    try:
        return yaml.compose(data, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise PolicyError(f"{path}{place}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyError(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from error


class _PlainData:
    """Converts YAML nodes to plain data. The total size of aliases is limited, and duplicate keys are errors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scalars = yaml.constructor.SafeConstructor()
        self._made = 0

    def data(self, node: yaml.Node, depth: int = 0) -> Any:
        self._made += 1
        if depth > DEPTH_MAX or self._made > NODES_MAX:
            raise PolicyError(f"{self._at(node)}: nested too deeply, or too many aliases")
        if isinstance(node, yaml.SequenceNode):
            return [self.data(item, depth + 1) for item in node.value]
        if not isinstance(node, yaml.MappingNode):
            return self._scalar(node)
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise PolicyError(f"{self._at(key)}: a key must be a word")
            if key.value in found:
                raise PolicyError(f"{self._at(key)}: '{key.value}' is given twice")
            found[key.value] = self.data(value, depth + 1)
        return found

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self._scalars.construct_object(node)
        except Exception as error:  # PyYAML's constructors raise any exception on unusual tags
            raise PolicyError(f"{self._at(node)}: cannot be parsed: {' '.join(str(error).split())[:100]}") from error

    def _at(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _find_yaml_node(node: yaml.Node | None, path: Path_) -> yaml.Node:
    assert node is not None  # noqa: S101 - an empty file was refused
    for part in path:
        below = None
        if isinstance(node, yaml.MappingNode):
            below = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            below = node.value[part]
        if below is None:
            break
        node = below
    return node


def _known_words(kind: type, path: Path_, *, keys: bool) -> list[str]:
    """Return what is valid at a place: the keys of a mapping, or the values."""
    schema = msgspec.json.schema(kind)
    places = [schema]
    for part in path:
        below = []
        for place in _schema_alternatives(places, schema):
            items = place.get("items") if isinstance(part, int) else place.get("properties", {}).get(part)
            other = place.get("additionalProperties")
            below += [found for found in (items, other) if isinstance(found, dict)]
        places = below
    words: dict[str, None] = {}
    for place in _schema_alternatives(places, schema):
        words.update(dict.fromkeys(place.get("properties", ()) if keys else map(str, place.get("enum", ()))))
        if not keys:  # a word where a mapping is possible: verbs are words as well
            words.update(dict.fromkeys(place.get("properties", ())))
    return list(words)


def _schema_alternatives(places: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    waiting = list(places)
    while waiting:
        place = waiting.pop(0)
        if "$ref" in place:
            waiting.append(schema["$defs"][place["$ref"].rpartition("/")[2]])
        waiting += [*place.get("anyOf", ()), *([place["items"]] if place.get("type") == "array" and not found else [])]
        found.append(place)
    return found


def _nearest_word(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"

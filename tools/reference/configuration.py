"""Every key of both configuration files, from the structs that parse them.

The meaning of a key is the comment on its line or above it, or its entry in the docstring of its struct, under ``Args:`` or
in its prose as `` `key`: … ``. The docstring introduces the section.
"""

from __future__ import annotations

import enum
import inspect
import re
import socket
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import healthd.config
import remediator.config
from tools.reference.markdown import code, head, joined, prose, table

ABOUT = (
    (
        "Each daemon reads one YAML file: `healthd --config FILE`, `remediator serve --config FILE`. Every key has a default unless it is "
        "*required*. The daemon refuses to start with an unknown key or an invalid value, and suggests the nearest valid one. Times are "
        "in seconds unless `_h` or `_days` ends the name. Samples to start from: `deploy/healthd.yaml`, `deploy/remediator.yaml`."
    ),
)
FILES: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    ("healthd", healthd.config.Config),
    ("remediator", remediator.config.Config),
)
_BOUNDS = {"gt": "> {}", "ge": "≥ {}", "lt": "< {}", "le": "≤ {}", "pattern": "as `{}`"}
_LENGTHS = {"min_length": "at least {}", "max_length": "at most {}"}
_WORDS = {str: "text", float: "number", int: "whole number", bool: "true or false", Path: "path", Any: "anything"}


class Key(typing.NamedTuple):
    """The documentation of one key."""

    name: str
    kind: str
    default: str
    meaning: str


def page() -> str:
    """docs/reference/configuration.md."""
    lines = head("Configuration", *ABOUT)
    for title, root in FILES:
        shown: set[type] = set()
        for path, struct, keys in sections(root):
            if struct in shown:
                continue
            shown.add(struct)
            within = re.sub(r" \(\w+\)", "", f"{path}." if path else "")
            lines += [f"### `{path}` of {title}" if path else f"## {title}", "", prose(_about(struct)), ""]
            rows = [[code(within + key.name), key.kind, key.default, prose(key.meaning)] for key in keys]
            lines += table(["key", "type", "default", "meaning"], rows)
    return joined(lines)


def sections(struct: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, type[msgspec.Struct], list[Key]]]:
    """Yield the keys of a struct, then those of nested structs, each with its path."""
    hints = typing.get_type_hints(struct, include_extras=True)
    said = meanings(struct)
    inner: list[tuple[str, type[msgspec.Struct]]] = []
    keys = []
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        below = list(_structs(hint, f"{path}.{field.encode_name}".lstrip(".")))
        inner += below
        default = "" if below and field.default == _first(below) else _default(field)
        meaning = said.get(field.name, "see below" if below else "")
        keys.append(Key(field.encode_name, _kind(hint), default, meaning))
    tag = struct.__struct_config__.tag
    if tag is not None:
        keys.insert(
            0, Key(str(struct.__struct_config__.tag_field), code(str(tag)), "*required*", "selects this variant")
        )
    yield path, struct, keys
    for below_path, below_struct in inner:
        yield from sections(below_struct, below_path)


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The documented meaning of each key of a struct, by field name."""
    found: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
            found |= _args(inspect.getdoc(cls) or "") | _comments(inspect.getsource(cls))
    return found


def _first(below: list[tuple[str, type[msgspec.Struct]]]) -> Any:
    """The default of a section; Ellipsis if one of its keys is required."""
    try:
        return below[0][1]()
    except (TypeError, ValueError):
        return Ellipsis


def _about(struct: type[msgspec.Struct]) -> str:
    doc = inspect.getdoc(struct) or ""
    return "\n\n".join(p for p in doc.split("\n\n") if not p.startswith(("Args:", "Raises:"))).strip()


def _args(doc: str) -> dict[str, str]:
    said = dict(re.findall(r"`(\w+)`: ([^.]+)\.(?=\s|$)", doc))
    section = re.search(r"^Args:\n((?: {4}.*\n?)+)", doc, re.MULTILINE)
    return said | dict(re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section[1] if section else "", re.MULTILINE))


def _comments(source: str) -> dict[str, str]:
    """The comment on a field's first or last line, or directly above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    open_field = ""
    for line in source.split("\n"):
        field = re.match(r" {4}(\w+): ", line)
        if field:
            open_field = field[1]
        comment = re.search(r"(?:^|\s{2})# (?!noqa|type:)(.*)$", line)
        if line.strip().startswith("#"):
            above.append(line.strip().removeprefix("#").strip())
            continue
        if open_field and (comment or (field and above)):
            found.setdefault(open_field, comment[1] if comment else " ".join(above))
        if not line.startswith((" " * 8, "    )")):
            above = []
            open_field = open_field if field and line.rstrip().endswith(("(", "[", "{")) else ""
        if re.match(r" {4}def ", line):
            break
    return found


def _kind(hint: Any) -> str:
    """The name of a type for readers."""
    if typing.get_origin(hint) is typing.Annotated:
        base, *metas = typing.get_args(hint)
        return " ".join([_kind(base), *_bounds(metas)])
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        rest = [one for one in args if one is not types.NoneType]
        return " or ".join(dict.fromkeys(_kind(one) for one in rest)) + (" or nothing" if len(rest) < len(args) else "")
    if origin is typing.Literal:
        return ", ".join(code(str(one)) for one in args)
    if origin in {tuple, frozenset, list}:
        return f"list of {_kind(args[0])}"
    if origin in {dict, Mapping}:
        return f"mapping of {_kind(args[0])} to {_kind(args[1])}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ", ".join(code(str(one.value)) for one in hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "section"
    return _WORDS[hint]


def _bounds(metas: list[msgspec.Meta]) -> Iterator[str]:
    for meta in metas:
        for name, words in (*_BOUNDS.items(), *_LENGTHS.items()):
            limit = getattr(meta, name)
            if limit is not None:
                yield words.format(limit)


def _structs(hint: Any, path: str) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield the sections within this type, each with its path; the key of a mapping is NAME."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        tag = hint.__struct_config__.tag
        yield (f"{path} ({tag})" if tag else path), hint
        return
    args = typing.get_args(hint)
    if typing.get_origin(hint) is dict:
        path, args = f"{path}.NAME", args[1:]
    elif typing.get_origin(hint) in {tuple, list, frozenset}:
        path = f"{path}[]"
    elif typing.get_origin(hint) is typing.Annotated:
        args = args[:1]
    elif typing.get_origin(hint) is typing.Literal:
        return
    for one in args:
        if one is not Ellipsis:
            yield from _structs(one, path)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is socket.gethostname:
        return "the host name"
    if field.default_factory is not msgspec.NODEFAULT:
        return _value(field.default_factory())
    return "*required*" if field.default is msgspec.NODEFAULT else _value(field.default)


def _value(value: Any) -> str:
    """A default in YAML notation; empty texts, lists and mappings are "none"."""
    if isinstance(value, frozenset) and any(isinstance(one, enum.Enum) and value == set(type(one)) for one in value):
        return "all"
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    if plain is None or plain in ("", (), [], {}):
        return "none"
    text = msgspec.json.encode(sorted(plain) if isinstance(value, frozenset) else plain).decode()
    return code(text.strip('"').replace(sys.executable, "python"))

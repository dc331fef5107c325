"""Explains a configuration error: its exact position and the values that are valid there. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

_Place = tuple[str, Any, Any]  # path, expected type, value found


def explain_config_error(error: msgspec.ValidationError, document: Any, kind: type) -> str:
    """Describe the error: its exact position and the valid values. `kind` is the expected type of the document."""
    message = str(error)
    match = re.fullmatch(r"(.*?)(?: - at `\$(.*)`)?", message, re.DOTALL)
    wrong = re.search(r"(unknown field|Invalid enum value|Invalid value) [`']([^`']*)[`']", message)
    if match is None or wrong is None:
        return message
    places: list[_Place] = [("", inspect.type_info(kind), document)]
    for field, index in re.findall(r"\.([^.\[]+)|\[([^\]]*)\]", match[2] or ""):
        places = [inner for place in places for inner in _descend_places(place, field, index)]
    for path, wanted, value in places:
        if wrong[1] == "unknown field" and isinstance(value, dict) and wrong[2] in value:
            return f"{path or 'top level'}: unknown field `{wrong[2]}`; {_nearest_known(wrong[2], _struct_field_names(wanted, value))}"
        if wrong[1] != "unknown field" and value == wrong[2] and (valid := _accepted_texts(wanted)):
            return f"{path}: {match[1]}; known: {', '.join(valid)}"
    return message


def _descend_places(place: _Place, field: str, index: str) -> Iterator[_Place]:
    """Descend one step; a step into a mapping names no key, so it leads to all of its values."""
    path, wanted, value = place
    for kind in _type_alternatives(wanted, value):
        if isinstance(kind, inspect.StructType) and isinstance(value, dict) and field in value:
            inner = {f.encode_name: f.type for f in kind.fields} | {str(kind.tag_field): wanted}
            if field in inner:
                yield f"{path}.{field}".lstrip("."), inner[field], value[field]
        elif isinstance(kind, inspect.DictType) and isinstance(value, dict) and index == "...":
            yield from ((f"{path}.{key}".lstrip("."), kind.value_type, one) for key, one in value.items())
        elif isinstance(kind, inspect.VarTupleType | inspect.ListType) and isinstance(value, list) and index.isdigit():
            yield f"{path}[{index}]", kind.item_type, value[int(index)]


def _type_alternatives(wanted: Any, value: Any) -> list[Any]:
    """Return the types a value may have; of tagged types only the one the value names, if it names one."""
    if not isinstance(wanted, inspect.UnionType):
        return [wanted]
    structs = [one for one in wanted.types if isinstance(one, inspect.StructType) and isinstance(value, dict)]
    return [one for one in structs if value.get(one.tag_field) == one.tag] or list(wanted.types)


def _struct_field_names(wanted: Any, value: dict[str, Any]) -> list[str]:
    kinds = [kind for kind in _type_alternatives(wanted, value) if isinstance(kind, inspect.StructType)]
    return sorted({name for kind in kinds for name in (*(f.encode_name for f in kind.fields), kind.tag_field) if name})


def _accepted_texts(wanted: Any) -> list[str]:
    """List the texts that a type accepts: values of an enumeration, or tags of a union."""
    if isinstance(wanted, inspect.EnumType):
        return [str(one.value) for one in wanted.cls]
    if isinstance(wanted, inspect.LiteralType):
        return [str(one) for one in wanted.values]
    return [str(one.tag) for one in _type_alternatives(wanted, None) if isinstance(one, inspect.StructType) and one.tag]


def _nearest_known(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"

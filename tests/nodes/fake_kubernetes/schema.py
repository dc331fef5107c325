"""Kubernetes' published OpenAPI schemas, as the official client library's models carry them: strict, unlike the library itself.

The document itself is several megabytes; the models are generated from it, field for field and type for type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes import client

PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "bytes": str, "datetime": str}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
FREE = {"object", "Any", "AnyType"}


def problems(value: Any, kind: str, place: str = "") -> Iterator[str]:
    """Everything of `value` that the schema `kind` (e.g. ``V1Node``, ``List[V1Taint]``) does not allow."""
    if kind in FREE:
        return
    if match := re.fullmatch(r"(?:List|list)\[(.+)\]", kind):
        if not isinstance(value, list):
            yield f"{place}: not a list"
            return
        for number, item in enumerate(value):
            yield from problems(item, match[1], f"{place}[{number}]")
    elif match := re.fullmatch(r"(?:Dict|dict)[\[(]str, (.+)[\])]", kind):
        if not isinstance(value, dict):
            yield f"{place}: not a map"
            return
        for key, item in value.items():
            yield from problems(item, match[1], f"{place}.{key}")
    elif kind in PLAIN:
        right = isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))
        if not right or (kind == "datetime" and TIME.fullmatch(value) is None):
            yield f"{place}: {value!r} is no {kind}"
    else:
        yield from _of_model(value, getattr(client, kind), place)


def _of_model(value: Any, model: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place}: not an object"
        return
    names = {wire: name for name, wire in model.attribute_map.items()}
    for wire, item in value.items():
        if wire not in names:
            yield f"{place}.{wire}: unknown field"
        elif item is not None:
            yield from problems(item, model.openapi_types[names[wire]], f"{place}.{wire}")
    needed = {field.alias or name for name, field in model.model_fields.items() if field.is_required()}
    for wire, name in names.items():
        if name in needed and value.get(wire) is None:
            yield f"{place}.{wire}: required"

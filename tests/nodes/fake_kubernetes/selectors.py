"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import re
from typing import Any

_SET = re.compile(r"(\S+) (in|notin) \(([^)]*)\)")


def labels_match(selector: str, labels: dict[str, str]) -> bool:
    """Equality, sets, presence and absence."""
    return all(_label(part.strip(), labels) for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _label(part: str, labels: dict[str, str]) -> bool:
    if match := _SET.fullmatch(part):
        inside = labels.get(match[1]) in [value.strip() for value in match[3].split(",")]
        return inside is (match[2] == "in")
    if "!=" in part:
        key, value = part.split("!=")
        return labels.get(key) != value
    if "=" in part:
        key, value = part.replace("==", "=").split("=")
        return labels.get(key) == value
    return part[1:] not in labels if part.startswith("!") else part in labels


def fields_match(selector: str, thing: dict[str, Any]) -> bool:
    """Equality and inequality of a field by its path; an absent field is empty."""
    for part in filter(None, selector.split(",")):
        path, wanted = part.replace("==", "=").replace("!=", "=").split("=")
        value: Any = thing
        for name in path.split("."):
            value = (value or {}).get(name, "")
        if (value == wanted) is ("!=" in part):
            return False
    return True

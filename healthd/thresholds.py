"""Reads the thresholds: the shipped file, the site's overrides on top, and overrides per GPU model.

Every number has one place, `thresholds.yaml` beside this file, with its reason; checks declare only the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

SHIPPED = Path(__file__).with_name("thresholds.yaml")

L = TypeVar("L")
Numbers = dict[str, float]
Sections = dict[str, Numbers]


class ThresholdsError(ValueError):
    """Thresholds that cannot be used; the text names the section and the key."""


class Thresholds:
    """Sections of numbers, by check; `skus` maps a part of a product name to its overrides."""

    def __init__(self, defaults: Sections, skus: Mapping[str, Sections]) -> None:
        self._defaults = defaults
        self._skus = dict(skus)

    def section(self, name: str, kind: type[L], product: str = "") -> L:
        """Return the numbers of one check, for GPUs of that product name.

        Raises:
            ThresholdsError: a number is missing, unknown, or of the wrong type.
        """
        numbers = dict(self._defaults.get(name, {}))
        for key in sorted(self._skus, key=len):
            if key.casefold() in product.casefold():
                numbers |= self._skus[key].get(name, {})
        try:
            return msgspec.convert(numbers, kind)
        except msgspec.ValidationError as error:
            raise ThresholdsError(f"thresholds, section {name!r}: {error}") from error


def load_thresholds(site: Mapping[str, Any] | None = None, path: Path = SHIPPED) -> Thresholds:
    """Return the shipped numbers, overridden by `site` (the configuration's `thresholds` section).

    Raises:
        ThresholdsError: a section or key does not exist, or a value is not a number.
    """
    shipped = yaml.safe_load(path.read_text())
    defaults = {name: _parse_numbers(name, section) for name, section in shipped["defaults"].items()}
    skus = {key: _check_sections(key, sections, defaults) for key, sections in shipped["skus"].items()}
    changes = dict(site or {})
    for key, sections in changes.pop("skus", {}).items():
        known = skus.setdefault(key, {})
        for name, numbers in _check_sections(key, sections, defaults).items():
            known[name] = known.get(name, {}) | numbers
    for name, numbers in _check_sections("thresholds", changes, defaults).items():
        defaults[name] |= numbers
    return Thresholds(defaults, skus)


def _check_sections(where: str, sections: Mapping[str, Any], known: Sections) -> Sections:
    found = {}
    for name, section in sections.items():
        if name not in known:
            raise ThresholdsError(f"{where}: no section {name!r}; there are {', '.join(sorted(known))}")
        found[name] = _parse_numbers(f"{where}.{name}", section)
        unknown = sorted(found[name].keys() - known[name].keys())
        if unknown:
            raise ThresholdsError(f"{where}.{name}: no key {unknown[0]!r}; there are {', '.join(sorted(known[name]))}")
    return found


def _parse_numbers(where: str, section: Any) -> Numbers:
    """Parse `key: number`, or `key: {value: number, why: text}`."""
    if not isinstance(section, Mapping):
        raise ThresholdsError(f"{where}: expected keys and numbers, got {section!r}")
    numbers = {}
    for key, entry in section.items():
        value = entry.get("value") if isinstance(entry, Mapping) else entry
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ThresholdsError(f"{where}.{key}: expected a number, got {entry!r}")
        numbers[key] = value
    return numbers

"""A line pattern: how a line is recognised, its meaning, and its severity."""

from __future__ import annotations

import re
from typing import NamedTuple

from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind


class LinePattern(NamedTuple):
    """One pattern. Its groups name the component (`pci`, `place`) and the evidence (all others).

    `clears`: the line says that the condition `code` has ended. A pattern of severity INFO is only recorded: another
    source detects whether it lasts.
    """

    code: str
    severity: Severity
    summary: str
    pattern: re.Pattern[str]
    clears: bool = False


class PatternFamily(NamedTuple):
    """Lines of one part of the kernel. The check reports as `check`; every line contains one of the strings `words`.

    `kind` is the component of the lines, unless they name the PCI address of a GPU. `about_programs`: the lines begin
    with the name of a user's program, so anybody can have them printed. All patterns of such a family are of severity
    INFO. `users_devices` matches the names of devices that may hold what a user made; lines about them are of severity
    INFO too.
    """

    check: str
    kind: ComponentKind
    words: tuple[str, ...]
    forms: tuple[LinePattern, ...]
    about_programs: bool = False
    users_devices: re.Pattern[str] | None = None


def match_pattern(family: PatternFamily, record: str) -> tuple[LinePattern, re.Match[str]] | tuple[None, None]:
    """Return the first pattern of `family` that this record matches, and its match."""
    for one in family.forms:
        match = one.pattern.match(record)
        if match is not None:
            return one, match
    return None, None


def make_pattern(code: str, severity: Severity, summary: str, pattern: str, *, clears: bool = False) -> LinePattern:
    """Return a pattern from its text, which is matched at the start of a record.

    The pattern begins with more driver text than a task's name can hold (15 bytes), before anything that may be a name
    or any other text: `tests/adversary/test_user_names_in_kernel_records.py` tries every pattern.
    """
    return LinePattern(code, severity, summary, re.compile(pattern), clears)


PCI = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"

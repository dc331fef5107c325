"""Slurm's host lists: many host names in one word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NAMES_MAX = 100_000
BRACKETS_MAX = 32  # in one name; Slurm itself accepts fewer
DIGITS_MAX = 18
_PART = re.compile(r"[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)*")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


def expand_hostlist(text: str) -> Iterator[str]:
    """Yield every name of a Slurm host list, 100 000 at most.

    >>> list(expand_hostlist("login,gpu[08-10],r[1-2]n[1,3]"))
    ['login', 'gpu08', 'gpu09', 'gpu10', 'r1n1', 'r1n3', 'r2n1', 'r2n3']
    """
    budget = NAMES_MAX
    for part in filter(None, _PART.findall(text)):
        for name in _expand_brackets(part) if part.count("[") <= BRACKETS_MAX else (part,):
            if budget == 0:
                return
            budget -= 1
            if name:
                yield name


def _expand_brackets(part: str) -> Iterator[str]:
    match = _BRACKETS.search(part)
    if match is None:
        yield part  # an empty one too: brackets of only commas multiply as well
        return
    for choice in match[1].split(","):
        for number in _expand_number_range(choice):
            yield from _expand_brackets(part[: match.start()] + number + part[match.end() :])


def _expand_number_range(choice: str) -> Iterable[str]:
    first, dash, last = choice.partition("-")
    if not (dash and first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        return (choice,)
    if max(len(first), len(last)) > DIGITS_MAX or int(first) > int(last):
        return (choice,)  # also an empty range, which would otherwise expand without end
    return (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)[:NAMES_MAX])

"""A number with its noun."""

from __future__ import annotations


def format_count(number: int, one: str, many: str = "") -> str:
    """Format a number with its noun; `many` if the plural is not the noun with an s.

    >>> [format_count(n, "node") for n in (0, 1, 2)], format_count(2, "entry", "entries")
    (['0 nodes', '1 node', '2 nodes'], '2 entries')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"

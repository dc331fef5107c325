"""Lines of cells as columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def align_columns(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Each line as text, its cells under those above, two spaces apart, without trailing blanks.

    `right` names the columns, counted from 0, that end under each other instead.

    >>> align_columns([("a", "12"), ("bcd", "3")], right={1})
    ['a    12', 'bcd   3']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
